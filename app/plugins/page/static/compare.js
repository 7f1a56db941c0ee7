// The Compare view: results of two models, or of one model at two thresholds, side by side.

import { MIN_SCORE, candidateLabels } from "./candidate_labels.js";
import { imageModels, notImageModel } from "./catalogue.js";
import { field, make, setText, slider, tableHead } from "./dom.js";
import { filterShapes, overlap, shapesOf } from "./drawing.js";
import { count, isolated, milliseconds, percent } from "./format.js";
import { imageInput } from "./image_input.js";
import { infer } from "./inference.js";
import { modelChoice, modelView } from "./model_view.js";
import { swatch } from "./palette.js";
import { sampleFor } from "./samples.js";
import { session } from "./session.js";
import { viewer } from "./viewer.js";

const SIDES = ["a", "b"];
const NAMES = { a: "left", b: "right" };
const MIN_IOU = 0.5;

export const open = modelView({
  title: "Compare",
  none: "No image model is ready, so there is nothing to compare.",
  select: imageModels,
  create: createCompareView,
});

function hasShapes(model) {
  return model.geometry !== null;
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
  const head = tableHead(["Label", "Left", "Right", "Difference", "IoU"]);
  const table = make("table.text-table.comparison", head, body);
  const summary = make("p.hint");
  const results = make(
    "section.panel",
    { "aria-label": "Differences" },
    make("h2", "Differences"),
    summary,
    make("div.scrollable", table),
  );
  let [image, sample, pending, warning] = [null, "", null, ""];
  content.replaceChildren(
    make("div.panel", source.element, labels.element),
    make("div.side-by-side", ...SIDES.map((id) => sides[id].element)),
    results,
  );
  for (const id of SIDES) {
    const other = sides[SIDES.find((side) => side !== id)];
    sides[id].view.ontransform = (transform) => other.view.restore(transform);
  }

  function createSide(id) {
    const title = id === "a" ? "Left" : "Right";
    const view = viewer({ label: `Image with results of the ${NAMES[id]} model` });
    const model = modelChoice(models, () => {
      reset(id);
      send();
    });
    const score = slider({ label: "Confidence threshold", min: MIN_SCORE, max: 1, value: 0.5, oninput: () => show() });
    const time = make("p.hint");
    const element = make(
      "section.panel.comparison-side",
      { "aria-label": title },
      make("div.row", field(`${title} model`, model), score.element),
      view.element,
      time,
    );
    return { view, model, score, time, element, records: null, current: model.current };
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
    const thisRequest = (pending = new AbortController());
    message.showError(warning);
    warning = "";
    setText(status, "Running …");
    const names = new Set(SIDES.filter((id) => sides[id].records === null).map((id) => sides[id].model.value));
    try {
      const missing = labels.missing(chosen);
      if (missing) throw new Error(missing);
      for (const name of names) {
        const model = models.find((model) => model.name === name);
        const parameters = labels.parameters(model);
        const { signal } = thisRequest;
        const answer = await infer({ root: tools.root, catalogue, model, data: [image], parameters, signal });
        if (thisRequest !== pending) return;
        for (const id of SIDES) {
          if (sides[id].model.value !== name) continue;
          sides[id].records = answer.outputs[0];
          setText(sides[id].time, `Answered in ${milliseconds(answer.milliseconds)}`);
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
    const shown = ({ current, records, score }) => resultsOf(current(), records, score.value(), image);
    const results = SIDES.map((id) => shown(sides[id]));
    const [one, other] = SIDES.map((id) => hasShapes(sides[id].current()));
    sides.a.view.shapes(one ? results[0] : []);
    sides.b.view.shapes(other ? results[1] : []);
    const comparable = one === other;
    const rows = comparable ? matchResults(...results, one) : [];
    table.hidden = !rows.length;
    body.replaceChildren(...rows.map((row) => createRow(row, one)));
    table.classList.toggle("no-boxes", !one);
    const number = (test) => count(rows.filter(test).length);
    const [both, onlyLeft, onlyRight] = [number(([a, b]) => a && b), number(([, b]) => !b), number(([a]) => !a)];
    setText(status, rows.length ? `${both} in both, ${onlyLeft} only left, ${onlyRight} only right` : "");
    const none = "No result reaches the confidence threshold on either side.";
    const classifier = one ? ["b", results[1]] : ["a", results[0]];
    setText(summary, rows.length ? "" : comparable ? none : describeClasses(...classifier));
  }

  // A classifier has no shapes to draw beside those of a detector.
  function describeClasses(id, [best]) {
    const found = best ? `found ${isolated(best.label)}, ${percent(100 * best.score)}` : "found nothing above the threshold";
    return `A classifier and a detector cannot be compared. The ${NAMES[id]} model ${found}.`;
  }

  // Another model with common labels, or the same model.
  function otherModel(model) {
    const others = models.filter((candidate) => candidate !== model && hasShapes(candidate) === hasShapes(model));
    return others.find((candidate) => candidate.labels.some((label) => model.labels.includes(label))) ?? model;
  }

  function createRow([one, other, iou], showIou) {
    const { label } = one ?? other;
    // A button, so that the keyboard can highlight shapes as the pointer does.
    const button = make("button.link", { type: "button" }, label);
    const only = `only ${one ? NAMES.a : NAMES.b}`;
    const difference = one && other ? signed(100 * (other.score - one.score)) : only;
    const score = (shape) => (shape ? percent(100 * shape.score) : "–");
    const row = make(
      "tr",
      one && other ? {} : { class: "unmatched" },
      make("th", { scope: "row" }, swatch(label), button),
      make("td", score(one)),
      make("td", score(other)),
      make("td", difference),
      make("td.col-iou", showIou && iou !== null ? iou.toFixed(2) : "–"),
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
      warning = missing === undefined ? "" : notImageModel(missing);
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

function signed(points) {
  return `${points > 0 ? "+" : points < 0 ? "−" : "±"}${Math.abs(points).toFixed(1)}`;
}

// Match two lists by label, highest overlap first. Return [left, right, iou], with null for a missing partner.
function matchResults(ones, others, byOverlap) {
  const candidates = [];
  for (const one of ones) {
    for (const other of others) {
      if (one.label !== other.label) continue;
      const iou = byOverlap ? overlap(one, other) : 1;
      if (iou >= MIN_IOU) candidates.push([one, other, iou]);
    }
  }
  candidates.sort((left, right) => right[2] - left[2]);
  const matched = new Set();
  const both = candidates.filter(([one, other]) => {
    if (matched.has(one) || matched.has(other)) return false;
    matched.add(one).add(other);
    return true;
  });
  const unmatched = (all) => all.filter((shape) => !matched.has(shape));
  const rows = [
    ...both,
    ...unmatched(ones).map((shape) => [shape, null, null]),
    ...unmatched(others).map((shape) => [null, shape, null]),
  ];
  const best = ([one, other]) => Math.max(one?.score ?? 0, other?.score ?? 0);
  return rows.sort((left, right) => best(right) - best(left));
}
