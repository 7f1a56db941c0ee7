// How a model is asked: a form made of what its task takes (JSON Schema, by way of page/models.json).

import { choice, field, slider } from "./controls.js";
import { make } from "./dom.js";
import { text } from "./text.js";

const words = text.try;
// Told otherwise: by the sliders, by the labels of what was found, by the questions; or nothing for people.
const ELSEWHERE = new Set(["action", "score_threshold", "iou_threshold", "labels", "prompts"]);

// `onnarrow` when what was found is to be filtered anew, `onask` when the model is to be asked anew, `onslide` while
// the slider of overlaps moves.
export function parameterForm(model, { onnarrow, onask, onslide = onnarrow }) {
  const schema = model.parameters;
  const seen =
    model.task_type === "TEXT_GENERATION" || model.task_type === "IMAGE_TEXT_TO_TEXT"
      ? false
      : "score_threshold" in schema;
  const parts = [];
  // Models that know no classes of their own are told them.
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
    // What to narrow by; `iou` is 1, which leaves everything, unless its slider moves just now: the server has done it.
    narrowing: () => ({
      score: score?.value() ?? 0,
      iou: sliding ? iou.value() : 1,
      most: seen && others().top_k >= 1 ? Math.floor(others().top_k) : Infinity,
    }),
    sliding: () => sliding,
    others,
    overlap: () => (moved ? { iou_threshold: iou.value() } : {}),
    // As somebody would ask for exactly what is shown.
    asked() {
      const found = others();
      if (score !== null && score.value() !== schema.score_threshold.default) found.score_threshold = score.value();
      return moved ? { ...found, iou_threshold: iou.value() } : found;
    },
  };
}

// A parameter that may be absent is a choice of its kind and null.
function kindOf(about) {
  return about.anyOf?.find((each) => each.type !== "null") ?? about;
}

// A control, and what reads it: undefined for what is left to the model.
function controlOf(about, onchange) {
  const kind = kindOf(about);
  const usual = about.default ?? null;
  if (kind.enum || kind.type === "boolean") {
    const values = kind.enum ?? [true, false];
    const named = values.map((each) => [JSON.stringify(each), { true: words.yes, false: words.no }[each] ?? each]);
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
      return kind.type === "array" ? value.split(",").map((each) => each.trim()) : value;
    },
  ];
}
