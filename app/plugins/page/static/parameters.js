// A form with the request parameters of a model, built from their JSON Schema in page/models.json.

import { choice, field, make, slider } from "./dom.js";

const NAMES = {
  top_k: "Top-k",
  candidate_labels: "Candidate labels",
  agnostic: "NMS across classes",
  nms: "Apply NMS",
  epsilon: "Simplify contours (pixels)",
  tile: "Tile (pixels)",
  overlap: "Overlap of tiles",
  max_new_tokens: "Max new tokens",
  temperature: "Temperature",
  top_p: "Top-p",
  seed: "Seed",
  stop: "Stop sequences",
  do_sample: "Sampling",
  return_full_text: "Include the prompt in the output",
};
// Parameters with their own controls elsewhere, or without meaning for users of the page.
const NOT_IN_FORM = new Set(["action", "score_threshold", "iou_threshold", "labels", "messages", "prompts"]);

// Return the controls that everybody needs as `element`, and the others as `more`, a disclosure.
// `onfilter`: filter the received answer. `onrequest`: send a new request. `onscore`: the score slider was released.
export function parameterForm(model, { onfilter, onrequest, onscore }) {
  const schema = model.parameters;
  const { returns, geometry } = model;
  const filters = returns !== "texts" && "score_threshold" in schema;
  const [fields, others] = [[], []];
  const maxLabel = geometry === null ? "Max results" : "Max detections";
  const readers = new Map();
  let score = null;

  if (filters) {
    const { default: value } = schema.score_threshold;
    score = slider({ label: "Confidence threshold", value, oninput: onfilter, onchange: onscore });
    fields.push(score.element);
  }
  if ("iou_threshold" in schema) {
    let isChanged = false;
    const { default: value } = schema.iou_threshold;
    const oninput = () => (isChanged = true);
    const iou = slider({ label: "NMS IoU threshold", max: 0.95, value, oninput, onchange: onrequest });
    readers.set("iou_threshold", () => (isChanged ? iou.value() : undefined));
    others.push(iou.element);
  }
  for (const [name, parameter] of Object.entries(schema)) {
    if (NOT_IN_FORM.has(name)) continue;
    const limitsResults = name === "top_k" && filters;
    const [control, read] = createControl(parameter, limitsResults ? onfilter : onrequest);
    readers.set(name, read);
    if (limitsResults) control.placeholder = "all";
    const hint = typeOf(parameter).type === "array" ? "Separate values with commas." : "";
    const element = field(limitsResults ? maxLabel : (NAMES[name] ?? name), control, hint);
    // A model that takes its labels from the request finds nothing without them.
    (name === "candidate_labels" ? fields : others).push(element);
  }
  const more = make("details", make("summary", "More"), make("div.form", ...others));
  more.hidden = !others.length;

  const ownParameters = () => {
    const parameters = {};
    for (const [name, read] of readers) {
      const value = read();
      if (value !== undefined) parameters[name] = value;
    }
    return parameters;
  };
  return {
    element: make("div.form", ...fields),
    more,
    filter: () => ({
      score: score?.value() ?? 0,
      max: filters && ownParameters().top_k >= 1 ? Math.floor(ownParameters().top_k) : Infinity,
    }),
    // The confidence threshold; null for models without one.
    score: () => score?.value() ?? null,
    setScore(value) {
      if (score === null || !(value >= 0 && value <= 1)) return;
      score.set(value);
      onfilter();
    },
    ownParameters,
    // The parameters of a request for exactly what is shown.
    requested() {
      const parameters = ownParameters();
      if (score !== null && score.value() !== schema.score_threshold.default) {
        parameters.score_threshold = score.value();
      }
      return parameters;
    },
  };
}

// An optional parameter is a union of its type and null.
function typeOf(schema) {
  return schema.anyOf?.find((option) => option.type !== "null") ?? schema;
}

// The items of a text with commas between them.
export function itemsOf(text) {
  return text
    .split(",")
    .map((item) => item.trim())
    .filter(Boolean);
}

// A control and its reader; undefined means the model's default.
function createControl(schema, onchange) {
  const type = typeOf(schema);
  const defaultValue = schema.default ?? null;
  if (type.enum || type.type === "boolean") {
    const values = type.enum ?? [true, false];
    const labelOf = (option) => ({ true: "yes", false: "no" })[option] ?? option;
    const options = values.map((option) => [JSON.stringify(option), labelOf(option)]);
    const emptyLabel = defaultValue === null ? "model default" : `${labelOf(defaultValue)} (default)`;
    const select = choice([["", emptyLabel], ...options], onchange);
    return [select, () => (select.value === "" ? undefined : JSON.parse(select.value))];
  }
  const isNumber = type.type === "number" || type.type === "integer";
  const input = make(
    "input",
    isNumber ? { type: "number", step: type.type === "integer" ? 1 : "any" } : { type: "text" },
  );
  if ("minimum" in type) input.min = type.minimum;
  if ("maximum" in type) input.max = type.maximum;
  if (defaultValue !== null) input.placeholder = [defaultValue].flat().join(", ");
  input.addEventListener("change", onchange);
  return [
    input,
    () => {
      const value = input.value.trim();
      if (value === "") return undefined;
      if (isNumber) return Number(value);
      return type.type === "array" ? itemsOf(value) : value;
    },
  ];
}
