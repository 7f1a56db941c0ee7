// The Compare view: results of two models, or of one model at two thresholds, side by side.

import { candidateLabels } from "./candidate_labels.js";
import { inputKind, readyModels } from "./catalogue.js";
import { choice, field, slider } from "./controls.js";
import { modelView } from "./model_view.js";
import { make, setText } from "./dom.js";
import { filterShapes, shapesOf } from "./drawing.js";
import { milliseconds, percent } from "./format.js";
import { infer } from "./inference.js";
import { imageInput } from "./image_input.js";
import { matchResults } from "./matching.js";
import { colourOf } from "./palette.js";
import { sampleFor } from "./samples.js";
import { session } from "./session.js";
import { taskOf } from "./tasks.js";
import { text } from "./text.js";
import { viewer } from "./viewer.js";

const strings = text.compare;
const ID = "compare";
const SIDES = ["a", "b"];
// Request low scores too: the sliders only filter the received answer.
const MIN_SCORE = 0.05;

export const compare = modelView({
  id: ID,
  title: strings.title,
  none: strings.none,
  select: (catalogue) => readyModels(catalogue).filter((model) => inputKind(model.task_type) === "image"),
  create: createCompareView,
});

function hasShapes(model) {
  return taskOf(model.task_type).geometry !== null;
}

// The results of a model above a threshold: shapes, or records for a classifier.
function resultsOf(model, records, score, image) {
  if (!hasShapes(model)) return records.filter((record) => record.score >= score);
  return filterShapes(shapesOf(model.task_type, records, image.width, image.height), { score });
}

function createCompareView({ main, content, tools, catalogue, models, message, status }) {
  const source = imageInput(main, {
    root: tools.root,
    catalogue,
    onimage: useImage,
    onerror: message.showError,
  });
  const labels = candidateLabels(() => {
    for (const id of SIDES) sides[id].records = null;
    send();
  });
  const sides = Object.fromEntries(SIDES.map((id) => [id, createSide(id)]));
  const body = make("tbody");
  const headings = strings.columns.map((heading) => make("th", { scope: "col" }, heading));
  const table = make("table", { class: "text-table comparison" }, make("thead", {}, make("tr", {}, ...headings)), body);
  const summary = make("p", { class: "hint" });
  const results = make(
    "section",
    { class: "panel", "aria-label": strings.differences },
    make("h2", {}, strings.differences),
    summary,
    make("div", { class: "scrollable" }, table),
  );
  let [image, sample, pending, warning] = [null, "", null, ""];
  content.replaceChildren(
    make("div", { class: "panel" }, source.element, labels.element),
    make("div", { class: "side-by-side" }, ...SIDES.map((id) => sides[id].element)),
    results,
  );
  for (const id of SIDES) {
    const other = sides[SIDES.find((side) => side !== id)];
    sides[id].view.ontransform = (transform) => other.view.restore(transform);
  }

  function createSide(id) {
    const view = viewer({ label: strings.imageOf[id] });
    const model = choice(
      models.map((model) => [model.name, model.name]),
      () => {
        reset(id);
        send();
      },
    );
    const score = slider({ label: strings.score, min: MIN_SCORE, max: 1, value: 0.5, oninput: () => show() });
    const time = make("p", { class: "hint" });
    const element = make(
      "section",
      { class: "panel comparison-side", "aria-label": strings.sides[id] },
      make("div", { class: "row" }, field(strings.models[id], model), score.element),
      view.element,
      time,
    );
    return {
      id,
      view,
      model,
      score,
      time,
      element,
      records: null,
      current: () => models.find(({ name }) => name === model.value),
    };
  }

  function reset(id) {
    const side = sides[id];
    if (id === "a") source.showSamples(side.current().task_type);
    const own = side.current().parameters.score_threshold?.default;
    side.score.set(Math.max(MIN_SCORE, own || 0.5));
    side.records = null;
  }

  function useImage(next, sampleName) {
    [image, sample] = [next, sampleName];
    session.images = [next];
    for (const id of SIDES) {
      sides[id].records = null;
      sides[id].view.show(next);
    }
    send();
  }

  // If both sides have the same model, one request serves both.
  async function send() {
    saveAddress();
    const chosen = SIDES.map((id) => sides[id].current());
    labels.show(chosen);
    if (image === null) return;
    pending?.abort();
    const missing = labels.missing(chosen);
    if (missing) {
      setText(status, "");
      for (const id of SIDES) sides[id].view.shapes([]);
      table.hidden = true;
      message.showError(text.try.needsLabels(missing.name));
      return;
    }
    const thisRequest = (pending = new AbortController());
    message.showError(warning);
    warning = "";
    setText(status, strings.working);
    const names = new Set(SIDES.filter((id) => sides[id].records === null).map((id) => sides[id].model.value));
    try {
      for (const name of names) {
        const model = models.find((model) => model.name === name);
        const low = model.parameters.score_threshold ? { score_threshold: MIN_SCORE } : {};
        const parameters = { ...low, ...labels.parameters(model) };
        const answer = await infer({
          root: tools.root,
          catalogue,
          model,
          data: [image],
          parameters,
          signal: thisRequest.signal,
        });
        if (thisRequest !== pending) return;
        for (const id of SIDES) {
          if (sides[id].model.value !== name) continue;
          sides[id].records = answer.outputs[0];
          setText(sides[id].time, strings.answered(milliseconds(answer.milliseconds)));
        }
      }
      show();
    } catch (error) {
      if (thisRequest !== pending || error.name === "AbortError") return;
      setText(status, "");
      // Do not leave the old answer beside the error.
      for (const id of SIDES) sides[id].view.shapes([]);
      table.hidden = true;
      message.showError(error);
    }
  }

  function saveAddress() {
    const query = { ...(sample ? { image: sample } : {}) };
    for (const id of SIDES) {
      query[id] = sides[id].model.value;
      query[`score_${id}`] = sides[id].score.value();
    }
    tools.save(query);
  }

  function show() {
    saveAddress();
    if (SIDES.some((id) => sides[id].records === null)) return;
    const left = SIDES.map((id) => resultsOf(sides[id].current(), sides[id].records, sides[id].score.value(), image));
    SIDES.forEach((id, index) => sides[id].view.shapes(drawsShapes(sides[id]) ? left[index] : []));
    const [one, other] = SIDES.map((id) => drawsShapes(sides[id]));
    const comparable = one === other;
    const rows = comparable ? matchResults(...left, one) : [];
    table.hidden = !rows.length;
    body.replaceChildren(...rows.map((row) => createRow(row, one)));
    table.classList.toggle("no-boxes", !one);
    const count = (test) => rows.filter(test).length;
    const sentence = strings.summary(
      count(([a, b]) => a && b),
      count(([, b]) => !b),
      count(([a]) => !a),
    );
    setText(status, rows.length ? sentence : "");
    setText(summary, rows.length ? "" : comparable ? strings.nothing : strings.incomparable);
  }

  function drawsShapes(side) {
    return hasShapes(side.current());
  }

  // Another model with common labels, or the same model.
  function otherModel(model) {
    const others = models.filter((candidate) => candidate !== model && hasShapes(candidate) === hasShapes(model));
    return others.find((candidate) => candidate.labels.some((label) => model.labels.includes(label))) ?? model;
  }

  function createRow([one, other, iou], showIou) {
    const key = make("span", { class: "swatch" });
    const { label } = one ?? other;
    key.style.background = colourOf(label);
    // A button, so that the keyboard can highlight shapes as the pointer does.
    const button = make("button", { type: "button", class: "link text-colour" }, label);
    const missing = one ? strings.only.a : strings.only.b;
    const difference = one && other ? strings.signed(100 * (other.score - one.score)) : missing;
    const score = (shape) => (shape ? percent(100 * shape.score) : "–");
    const row = make(
      "tr",
      one && other ? {} : { class: "unmatched" },
      make("th", { scope: "row" }, key, button),
      make("td", {}, score(one)),
      make("td", {}, score(other)),
      make("td", {}, difference),
      make("td", { class: "col-iou" }, showIou && iou !== null ? iou.toFixed(2) : "–"),
    );
    const highlight = (on) => {
      sides.a.view.choose(on ? (one?.index ?? null) : null);
      sides.b.view.choose(on ? (other?.index ?? null) : null);
      row.classList.toggle("selected", on);
    };
    for (const event of ["pointerenter", "focusin"]) row.addEventListener(event, () => highlight(true));
    for (const event of ["pointerleave", "focusout"]) row.addEventListener(event, () => highlight(false));
    return row;
  }

  return {
    change(parameters) {
      const isKnown = (name) => models.some((model) => model.name === name);
      const missing = SIDES.map((id) => parameters.get(id)).find((name) => name !== null && !isKnown(name));
      const first = models.find((model) => model.name === session.model) ?? models.find(hasShapes) ?? models[0];
      for (const id of SIDES) {
        const name = parameters.get(id);
        sides[id].model.value = isKnown(name) ? name : (id === "b" ? otherModel(first) : first).name;
        reset(id);
        const score = Number.parseFloat(parameters.get(`score_${id}`));
        if (score >= MIN_SCORE && score <= 1) sides[id].score.set(score);
      }
      // Two equal sides would show no difference.
      if (!parameters.has("b") && sides.a.model.value === sides.b.model.value) {
        sides.b.score.set(Math.min(0.95, sides.a.score.value() + 0.3));
      }
      // Keep the warning visible with the first answer, which is of another model.
      warning = missing === undefined ? "" : strings.unknown(missing);
      message.showError(warning);
      const sampleName = parameters.get("image");
      if (sampleName) source.sample(sampleName);
      else if (image !== null) send();
      else if (session.images[0]?.width) {
        source.take(session.images[0]);
      } else {
        const defaultSample = sampleFor(catalogue, sides.a.current().task_type);
        if (defaultSample) source.sample(defaultSample);
      }
    },
    close() {
      pending?.abort();
      source.close();
      for (const id of SIDES) sides[id].view.close();
    },
  };
}
