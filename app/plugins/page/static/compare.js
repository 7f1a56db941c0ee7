// A second model or version in Try, or the same at another threshold: its results beside the first, and what differs.

import { notImageModel } from "./catalogue.js";
import { button, choice, field, make, setText, slider, tableHead } from "./dom.js";
import { filterResults, overlap, resultsOf } from "./drawing.js";
import { count, percent } from "./format.js";
import { requestImage } from "./inference.js";
import { swatch } from "./palette.js";
import { viewer } from "./viewer.js";

const MIN_IOU = 0.5;
const MIN_SCORE = 0.05;
const LABEL = "Image with results of the second model";
const NONE = "No result reaches the confidence threshold of either model.";

// `images` is what try_image.js offers. `onchange` is called when the address changes. Return { button, element,
// address(), change(parameters), close() }.
export function comparison({ tools, catalogue, model: first, images, message, onchange }) {
  // A classifier has no shapes to compare with those of a detector.
  const hasShapes = first.geometry !== null;
  const models = catalogue.models.filter(
    ({ state, takes, geometry }) => state === "READY" && takes === "image" && (geometry !== null) === hasShapes,
  );
  const idOf = ({ name, version, latest }) => (latest ? name : `${name}@${version}`);
  const find = (id) => models.find((model) => idOf(model) === id);
  const select = choice(
    models.map((model) => [idOf(model), model.latest ? model.name : `${model.name}, version ${model.version}`]),
    () => set(select.value),
  );
  const exact = tools.observed;
  const onscore = (value) => {
    threshold = value;
    if (exact) update(image);
  };
  const label = "Confidence threshold";
  const score = slider({ label, min: MIN_SCORE, value: 0.5, oninput: onchange, onchange: onscore });
  const status = make("p.hint", { role: "status" });
  const meaning = make("p.hint");
  const body = make("tbody");
  const head = tableHead(["Label", "First", "Second", "Difference", "IoU"]);
  const table = make("table.text-table.figures-table.comparison", head, body);
  const controls = make("div.row", field("Second model", select), score.element, button("Remove", () => remove()));
  const differences = make(
    "section.panel",
    { "aria-label": "Differences" },
    controls,
    status,
    meaning,
    make("div.scrollable", table),
  );
  const element = make("div", { hidden: "" });
  const addButton = button("Add a second model", () => set(idOf(otherModel())));
  let [view, image, bitmap, request, records, pending] = [null, null, null, "", null, new AbortController()];
  // That of the last request, if it asks for what is shown.
  let threshold = 0;

  images.onchange((shown) => view !== null && update(shown));

  const sharesLabels = ({ labels }) => labels.some((label) => first.labels.includes(label));

  // Another version, a model with common labels, one with the same geometry, any other, or else the same.
  function otherModel() {
    const others = models.filter((model) => model !== first);
    const tests = [({ name }) => name === first.name, sharesLabels, ({ geometry }) => geometry === first.geometry];
    return tests.map((test) => others.find(test)).find(Boolean) ?? others[0] ?? first;
  }

  function set(id, chosen = null) {
    select.value = id;
    if (view === null) open();
    const model = find(id);
    const own = Math.max(MIN_SCORE, model.parameters.score_threshold?.default || 0.5);
    // Two equal models with equal thresholds would show no difference.
    score.set(chosen ?? (model === first ? Math.min(0.95, own + 0.3) : own));
    threshold = score.value();
    const overlapping = hasShapes ? " and overlap by half or more (IoU)" : "";
    const common = sharesLabels(model) ? "" : " These models have no label in common.";
    const columns = `First is ${first.name}, and second is ${select.selectedOptions[0].text}.`;
    setText(meaning, `${columns} Two results share a row if they have the same label${overlapping}.${common}`);
    onchange();
  }

  function open() {
    view = viewer({ label: LABEL });
    images.viewer.ontransform = (transform) => view?.restore(transform);
    view.ontransform = images.viewer.restore;
    images.viewer.onoverlay = view.overlay;
    const side = (model, { element: shown }) => make("div", make("p.hint", model), shown);
    const name = make("span");
    images.stage.replaceChildren(side(first.name, images.viewer), side(name, view));
    view.name = name;
    images.stage.classList.add("compared");
    element.replaceChildren(differences);
    [element.hidden, addButton.hidden] = [false, true];
  }

  function remove() {
    close();
    images.stage.classList.remove("compared");
    images.stage.replaceChildren(images.viewer.element);
    element.replaceChildren();
    [element.hidden, addButton.hidden] = [true, false];
    onchange();
  }

  function close() {
    pending.abort();
    images.viewer.onoverlay = () => {};
    view?.close();
    [view, image, bitmap, request] = [null, null, null, ""];
  }

  // Send a request if the image, the model or a parameter has changed.
  async function update(shown) {
    const model = find(select.value);
    const known = Object.entries(images.ownParameters()).filter(([name]) => name in model.parameters);
    if (exact) known.push(["score_threshold", threshold]);
    const parameters = Object.fromEntries(known);
    const next = JSON.stringify([model.name, parameters]);
    setText(view.name, select.selectedOptions[0].text);
    // The first answer may arrive before the image is decoded.
    const decoded = shown?.bitmap ?? null;
    if (shown !== image || decoded !== bitmap) {
      view.show(shown);
      view.overlay(...images.viewer.overlaid());
    }
    bitmap = decoded;
    if (shown === image && next === request) {
      show();
      return;
    }
    pending.abort();
    const { signal } = (pending = new AbortController());
    [image, request, records] = [shown, next, null];
    show();
    if (shown === null) return;
    try {
      const answer = await requestImage({ root: tools.root, catalogue, model, image, parameters, exact, signal });
      if (signal.aborted) return;
      records = answer.records;
      show();
    } catch (error) {
      if (!signal.aborted) message.showError(error);
    }
  }

  function show() {
    const model = find(select.value);
    // Shapes have no place until the image is decoded.
    const isReady = records !== null && (!hasShapes || image.width > 0);
    const own = isReady ? filterResults(resultsOf(model, records, image), { score: score.value() }) : [];
    view.shapes(hasShapes ? own : []);
    const pairs = isReady ? matchResults(images.results(), own, hasShapes) : [];
    table.hidden = !pairs.length;
    table.classList.toggle("no-boxes", !hasShapes);
    body.replaceChildren(...pairs.map(createRow));
    const number = (test) => count(pairs.filter(test).length);
    const [both, one, other] = [number(([a, b]) => a && b), number(([, b]) => !b), number(([a]) => !a)];
    const counts = `${both} in both, ${one} only first, ${other} only second`;
    setText(status, !isReady ? "" : pairs.length ? counts : NONE);
  }

  function createRow([one, other, iou]) {
    const { label } = one ?? other;
    // A button, so that the keyboard can highlight shapes as the pointer does.
    const name = make("button.link", { type: "button" }, label);
    const only = `only ${one ? "first" : "second"}`;
    const difference = one && other ? signed(100 * (other.score - one.score)) : only;
    const scoreText = (result) => (result ? percent(100 * result.score) : "–");
    const row = make(
      "tr",
      one && other ? {} : { class: "unmatched" },
      make("th", { scope: "row" }, swatch(label), name),
      make("td", scoreText(one)),
      make("td", scoreText(other)),
      make("td", difference),
      make("td.col-iou", iou === null ? "–" : iou.toFixed(2)),
    );
    const highlight = (on) => {
      images.viewer.choose(on ? (one?.index ?? null) : null);
      view?.choose(on ? (other?.index ?? null) : null);
      row.classList.toggle("selected", on);
    };
    for (const event of ["pointerenter", "focusin"]) row.addEventListener(event, () => highlight(true));
    for (const event of ["pointerleave", "focusout"]) row.addEventListener(event, () => highlight(false));
    return row;
  }

  return {
    button: addButton,
    element,
    address: () => (view === null ? {} : { second: select.value, second_score: score.value() }),
    change(parameters) {
      const name = parameters.get("second");
      const chosen = Number.parseFloat(parameters.get("second_score"));
      if (name === null && view !== null) remove();
      else if (name !== null && !find(name)) message.showError(notImageModel(name));
      else if (name !== null) set(name, chosen >= MIN_SCORE && chosen <= 1 ? chosen : null);
    },
    close,
  };
}

function signed(points) {
  return `${points > 0 ? "+" : points < 0 ? "−" : "±"}${Math.abs(points).toFixed(1)}`;
}

// Match two lists by label, highest overlap first. Return [first, second, iou], with null for a missing partner.
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
  const unmatched = (all) => all.filter((result) => !matched.has(result));
  const rows = [
    ...both,
    ...unmatched(ones).map((result) => [result, null, null]),
    ...unmatched(others).map((result) => [null, result, null]),
  ];
  const best = ([one, other]) => Math.max(one?.score ?? 0, other?.score ?? 0);
  return rows.sort((left, right) => best(right) - best(left));
}
