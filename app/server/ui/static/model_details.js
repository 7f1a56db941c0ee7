// What the Models view shows of a model when its entry is open.

import { make } from "./dom.js";
import { count } from "./format.js";
import { text } from "./text.js";

const strings = text.models;
const MAX_LABELS = 24;
// Facts that the row of the model already shows.
const SHOWN_IN_ROW = new Set(["task type", "labels"]);

// The elements of the details of a model: versions, tensors, parameters, labels, properties and links.
export function modelDetails({ name, versions, about }, root) {
  const urlOf = (path) => new URL(path, root).href;
  const path = `v2/models/${encodeURIComponent(name)}`;
  const sections = [
    table(
      strings.versions,
      strings.versionColumns,
      versions.map((version) => [version.version, strings.states[version.state]]),
    ),
  ];
  if (about !== null) {
    const shape = ({ name: tensor, datatype, shape: sizes }) => {
      return [tensor, datatype, `[${sizes.map((size) => (size < 0 ? strings.anySize : size)).join(", ")}]`];
    };
    const parameters = Object.entries(about.parameters).map(([key, schema]) => [
      key,
      typeText(schema),
      valueText(schema.default),
    ]);
    const facts = about.facts
      .filter((fact) => !SHOWN_IN_ROW.has(fact.topic))
      .map((fact) => [fact.topic, fact.value, fact.origin]);
    sections.push(
      table(strings.inputs, strings.tensorColumns, about.inputs.map(shape)),
      table(strings.outputs, strings.tensorColumns, about.outputs.map(shape)),
      table(strings.parameters, strings.parameterColumns, parameters),
      labels(about.labels),
      table(strings.facts, strings.factColumns, facts, "wide"),
    );
  }
  const links = [
    [`#request?${new URLSearchParams({ model: name })}`, strings.links.request],
    [urlOf(path), strings.links.metadata],
    [urlOf(`${path}/stats`), strings.links.statistics],
    [urlOf("schema"), strings.links.schema],
  ];
  const shown = about === null ? links.slice(-1) : links;
  sections.push(
    make(
      "div",
      {},
      make("h3", {}, strings.more),
      make("ul", { class: "links" }, ...shown.map(([href, label]) => make("li", {}, make("a", { href }, label)))),
    ),
  );
  return sections.filter((section) => section !== null);
}

function labels(names) {
  if (!names.length) return null;
  const chips = make("ul", { class: "chips" }, ...names.slice(0, MAX_LABELS).map((label) => make("li", {}, label)));
  const moreButton = make("button", { type: "button", class: "link" }, strings.allLabels(count(names.length)));
  moreButton.hidden = names.length <= MAX_LABELS;
  moreButton.addEventListener("click", () => {
    chips.append(...names.slice(MAX_LABELS).map((label) => make("li", {}, label)));
    moreButton.hidden = true;
  });
  return make("div", { class: "wide" }, make("h3", {}, strings.labels(count(names.length))), chips, moreButton);
}

function table(title, headings, rows, kind = "") {
  if (!rows.length) return null;
  const head = make("tr", {}, ...headings.map((heading) => make("th", { scope: "col" }, heading)));
  const cells = ([first, ...rest]) =>
    make("tr", {}, make("th", { scope: "row" }, first), ...rest.map((cell) => make("td", {}, cell)));
  const body = make("tbody", {}, ...rows.map(cells));
  const content = make("table", { class: "text-table", "aria-label": title }, make("thead", {}, head), body);
  return make("div", { class: kind }, make("h3", {}, title), make("div", { class: "scrollable" }, content));
}

function typeText(schema) {
  const ownType = schema.type ?? (schema.enum ?? []).map(valueText).join(", ") ?? "";
  const content = schema.anyOf
    ? schema.anyOf
        .map((option) => typeText(option))
        .filter((option) => option !== "null")
        .join(", ")
    : [ownType].flat().join(", ");
  const { minimum, maximum } = schema;
  if (minimum !== undefined && maximum !== undefined) return strings.between(content, minimum, maximum);
  return minimum === undefined ? content : strings.minimum(content, minimum);
}

function valueText(value) {
  return value === undefined || value === null ? "–" : typeof value === "string" ? value : JSON.stringify(value);
}
