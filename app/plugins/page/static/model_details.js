// What the Models view shows of a model when its entry is open.

import { make, tableHead } from "./dom.js";
import { count, valueText } from "./format.js";

export const STATES = { READY: "ready", LOADING: "loading", UNAVAILABLE: "not ready" };
const TENSOR_COLUMNS = ["Name", "Type", "Shape"];
const MAX_LABELS = 24;

// The elements of the details of a model: versions, tensors, parameters, labels, properties and links.
export function modelDetails({ name, versions, about }, root) {
  const urlOf = (path) => new URL(path, root).href;
  const path = `v2/models/${encodeURIComponent(name)}`;
  const states = versions.map((version) => [version.version, STATES[version.state]]);
  const sections = [table("Versions", ["Version", "State"], states)];
  if (about !== null) {
    const shape = ({ name: tensor, datatype, shape: sizes }) => {
      return [tensor, datatype, `[${sizes.map((size) => (size < 0 ? "any" : size)).join(", ")}]`];
    };
    const parameters = Object.entries(about.parameters).map(([key, schema]) => [
      key,
      typeText(schema),
      valueText(schema.default ?? "–"),
    ]);
    const facts = about.facts.map((fact) => [fact.topic, fact.value, fact.origin]);
    sections.push(
      table("Inputs", TENSOR_COLUMNS, about.inputs.map(shape)),
      table("Outputs", TENSOR_COLUMNS, about.outputs.map(shape)),
      table("Parameters", ["Name", "Type", "Default"], parameters),
      labels(about.labels),
      table("Detected properties", ["Property", "Value", "Source"], facts, "wide"),
    );
  }
  const links = [
    [`#request?${new URLSearchParams({ model: name })}`, "Use in code"],
    [urlOf(path), "Metadata (JSON)"],
    [urlOf(`${path}/stats`), "Statistics (JSON)"],
    [urlOf("schema"), "API reference (OpenAPI)"],
  ];
  const shown = about === null ? links.slice(-1) : links;
  sections.push(
    make(
      "div",
      make("h3", "More"),
      make("ul.links", ...shown.map(([href, label]) => make("li", make("a", { href }, label)))),
    ),
  );
  return sections.filter((section) => section !== null);
}

function labels(names) {
  if (!names.length) return null;
  const attributes = names.length > MAX_LABELS ? {} : { open: "" };
  const chips = make("ul.chips", ...names.map((label) => make("li", label)));
  return make("details.wide", attributes, make("summary", `Labels (${count(names.length)})`), chips);
}

function table(title, headings, rows, kind = "") {
  if (!rows.length) return null;
  const cells = ([first, ...rest]) =>
    make("tr", make("th", { scope: "row" }, first), ...rest.map((cell) => make("td", cell)));
  const body = make("tbody", ...rows.map(cells));
  const content = make("table.text-table", { "aria-label": title }, tableHead(headings), body);
  return make("div", { class: kind }, make("h3", title), make("div.scrollable", content));
}

function typeText(schema) {
  const ownType = schema.type ?? (schema.enum ?? []).map(valueText).join(", ");
  const content = schema.anyOf
    ? schema.anyOf
        .map((option) => typeText(option))
        .filter((option) => option !== "null")
        .join(", ")
    : [ownType].flat().join(", ");
  const { minimum, maximum } = schema;
  if (minimum !== undefined && maximum !== undefined) return `${content}, ${minimum} to ${maximum}`;
  return minimum === undefined ? content : `${content}, ${minimum} or more`;
}
