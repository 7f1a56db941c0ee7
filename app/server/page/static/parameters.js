// A form with the request parameters of a model, built from their JSON Schema in page/models.json.

import { choice, field, slider } from "./controls.js";
import { make } from "./dom.js";
import { text } from "./text.js";

const words = text.try;
// Parameters with their own controls elsewhere, or without meaning for users of the page.
const ELSEWHERE = new Set(["action", "score_threshold", "iou_threshold", "labels", "prompts"]);

// `onfilter`: filter the received answer. `onrequest`: send a new request. `onslide`: the IoU slider is moving.
export function parameterForm(model, { onnarrow, onask, onslide = onnarrow }) {
  const schema = model.parameters;
  const seen =
    model.task_type === "TEXT_GENERATION" || model.task_type === "IMAGE_TEXT_TO_TEXT"
      ? false
      : "score_threshold" in schema;
  const parts = [];
  // Models without their own labels need candidate labels.
  const told =
    !model.labels.length &&
    ["IMAGE_CLASSIFICATION", "OBJECT_DETECTION", "TEXT_CLASSIFICATION"].includes(model.task_type);
  const readers = new Map();
  let score = null;
  let iou = null;
  let [moved, sliding] = [false, false];

  if (seen) {
    score = slider({ label: words.score, value: schema.score_threshold.default, oninput: onnarrow });
    parts.push(score.element);
  }
  if ("iou_threshold" in schema) {
    const oninput = () => {
      [moved, sliding] = [true, true];
      onslide();
    };
    const onchange = () => {
      sliding = false;
      onask();
    };
    iou = slider({ label: words.iou, max: 0.95, value: schema.iou_threshold.default, oninput, onchange });
    parts.push(iou.element);
  }
  for (const [name, about] of Object.entries(schema)) {
    if (ELSEWHERE.has(name) || (name === "candidate_labels" && !told)) continue;
    const most = name === "top_k" && seen;
    const [control, read] = controlOf(about, most ? onnarrow : onask);
    readers.set(name, read);
    if (most) control.placeholder = words.everything;
    const hint = kindOf(about).type === "array" ? words.listHint : "";
    parts.push(field(most ? words.most : (words.names[name] ?? name), control, hint));
  }

  const others = () => {
    const found = {};
    for (const [name, read] of readers) {
      const value = read();
      if (value !== undefined) found[name] = value;
    }
    return found;
  };
  return {
    element: make("div", { class: "form" }, ...parts),
    // `iou` is 1 (no filter) unless its slider is moving, because the server has already applied NMS.
    narrowing: () => ({
      score: score?.value() ?? 0,
      iou: sliding ? iou.value() : 1,
      most: seen && others().top_k >= 1 ? Math.floor(others().top_k) : Infinity,
    }),
    sliding: () => sliding,
    others,
    overlap: () => (moved ? { iou_threshold: iou.value() } : {}),
    // The parameters of a request for exactly what is shown.
    asked() {
      const found = others();
      if (score !== null && score.value() !== schema.score_threshold.default) found.score_threshold = score.value();
      return moved ? { ...found, iou_threshold: iou.value() } : found;
    },
  };
}

// An optional parameter is a union of its type and null.
function kindOf(about) {
  return about.anyOf?.find((option) => option.type !== "null") ?? about;
}

// A control and its reader; undefined means the model's default.
function controlOf(about, onchange) {
  const kind = kindOf(about);
  const usual = about.default ?? null;
  if (kind.enum || kind.type === "boolean") {
    const values = kind.enum ?? [true, false];
    const named = values.map((option) => [JSON.stringify(option), { true: words.yes, false: words.no }[option] ?? option]);
    const left = usual === null ? words.ofModel : words.usual({ true: words.yes, false: words.no }[usual] ?? usual);
    const select = choice([["", left], ...named], onchange);
    return [select, () => (select.value === "" ? undefined : JSON.parse(select.value))];
  }
  const number = kind.type === "number" || kind.type === "integer";
  const input = make(
    "input",
    number ? { type: "number", step: kind.type === "integer" ? 1 : "any" } : { type: "text" },
  );
  for (const [bound, name] of [
    ["minimum", "min"],
    ["maximum", "max"],
  ]) {
    if (bound in kind) input.setAttribute(name, kind[bound]);
  }
  if (usual !== null) input.placeholder = [usual].flat().join(", ");
  input.addEventListener("change", onchange);
  return [
    input,
    () => {
      const value = input.value.trim();
      if (value === "") return undefined;
      if (number) return Number(value);
      return kind.type === "array" ? value.split(",").map((item) => item.trim()) : value;
    },
  ];
}
