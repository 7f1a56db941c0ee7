// Try a model that returns classes or shapes for images.
//
// Each image is requested once with a low threshold, and the confidence slider filters the answer. While the IoU slider
// moves, the page filters an answer without NMS. When it stops, a new request is sent, because only the server has the
// boxes before clipping.

import { button, make, save, setText } from "./dom.js";
import { filterShapes, shapesOf, toPng } from "./drawing.js";
import { count, counted, isolated } from "./format.js";
import { imageList, imageTryLayout } from "./image_list.js";
import { infer } from "./inference.js";
import { parameterForm } from "./parameters.js";
import { recordList } from "./results.js";
import { session } from "./session.js";
import { viewer } from "./viewer.js";

const MIN_SCORE = 0.05;
const MAX_IOU = 0.95;
const MAX_DETECTIONS = { contour: 100 };
const DEFAULT_MAX_DETECTIONS = 300;
const MAX_CONCURRENT = 2;

export function createImageTry({ tools, root, go, catalogue, model, message, area }) {
  const imageViewer = viewer({ label: "Images" });
  const list = recordList({ onhover: (index) => imageViewer.choose(index) });
  const onrequest = () => {
    message.clear();
    requestAll(session.images, true);
  };
  const form = parameterForm(model, { onfilter: refresh, onrequest, onslide: slide });
  const status = make("p.hint", { role: "status" });
  const legend = make("div.legend", { role: "group", "aria-label": "Labels" });
  const imageInputs = imageList({
    root,
    area,
    catalogue,
    task: model.task_type,
    message,
    onshow: display,
    onnew: requestAll,
    onsample: (sample) => go("try", { ...address(), sample }),
  });
  const { geometry } = model;
  const hasShapes = geometry !== null;
  const maxDetections = MAX_DETECTIONS[geometry] ?? DEFAULT_MAX_DETECTIONS;
  // The answer of each image: { records, shapes, milliseconds }; null after an error.
  let answers = new Map();
  // Answers without NMS, of images that were shown while the IoU slider moved.
  const unsuppressed = new Map();
  let unsuppressedParameters = "";
  let hidden = new Set();
  let pending = new AbortController();
  let bestScore = 0;
  const bestButton = button("", () => form.setScore(bestScore));
  bestButton.hidden = true;

  imageViewer.onhover = (index) => list.choose(index);

  async function requestAll(images, keepAnswers = false) {
    pending.abort();
    pending = new AbortController();
    const { signal } = pending;
    // With new parameters, keep the old answers visible until new ones arrive.
    if (!keepAnswers) answers = new Map();
    const ownParameters = JSON.stringify(form.ownParameters());
    if (ownParameters !== unsuppressedParameters) unsuppressed.clear();
    unsuppressedParameters = ownParameters;
    refresh();
    const queue = [...images];
    const worker = async () => {
      for (let image = queue.shift(); image && !signal.aborted; image = queue.shift()) {
        await requestOne(image, signal);
      }
    };
    await Promise.all(Array.from({ length: MAX_CONCURRENT }, worker));
  }

  async function requestAnswer(image, extra, signal) {
    const { top_k, ...parameters } = { ...form.ownParameters(), ...extra };
    parameters.score_threshold = hasShapes ? Math.min(MIN_SCORE, model.parameters.score_threshold.default) : 0;
    if (hasShapes) parameters.top_k = maxDetections;
    const { outputs, milliseconds } = await infer({ root, catalogue, model, data: [image], parameters, signal });
    const shapes = shapesOf(model.task_type, outputs[0], image.width, image.height);
    return { records: outputs[0], shapes, milliseconds };
  }

  async function slide() {
    const image = imageInputs.shown();
    if (image !== null && !unsuppressed.has(image)) {
      unsuppressed.set(image, null);
      unsuppressed.set(image, await requestAnswer(image, { iou_threshold: MAX_IOU }).catch(() => null));
    }
    refresh();
  }

  async function requestOne(image, signal) {
    try {
      answers.set(image, await requestAnswer(image, form.iouParameter(), signal));
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error.name !== "ConnectionLost") error.message = `${image.name}: ${error.message}`;
      message.showError(error);
      answers.set(image, null);
    }
    refresh();
  }

  // The address has no place for the user's own images.
  function address() {
    const [score, sample] = [form.score(), imageInputs.shown()?.sample];
    return { model: model.name, ...(sample ? { sample } : {}), ...(score === null ? {} : { score }) };
  }

  function codeAddress() {
    const { sample: _, ...parameters } = address();
    return parameters;
  }

  const answerFor = (image) => (form.isSliding() && unsuppressed.get(image)) || answers.get(image);

  // The filtered answer of an image: shapes, or records with their index for a classifier.
  function filtered(image) {
    const answer = answerFor(image);
    if (!answer) return [];
    const results = hasShapes ? answer.shapes : answer.records.map((record, index) => ({ ...record, index }));
    const candidates = filterShapes(results, { ...form.filter(), max: Infinity });
    return candidates.filter((result) => !hidden.has(result.label)).slice(0, form.filter().max);
  }

  function refresh() {
    session.parameters = form.requested();
    const image = imageInputs.shown();
    if (image !== null) tools.save(address());
    const answer = answerFor(image);
    const shown = filtered(image);
    imageViewer.shapes(hasShapes && image?.width ? shown : []);
    list.show(shown);
    for (const other of answers.keys())
      imageInputs.setBadge(other, hasShapes ? String(filtered(other).length) : (filtered(other)[0]?.label ?? ""));
    downloads.hidden = !answer;
    const best = shown.length ? 0 : Math.max(0, ...(answer?.records ?? []).map((record) => record.score));
    // The slider has two decimals.
    bestScore = Math.floor(100 * best) / 100;
    bestButton.hidden = !bestScore;
    setText(bestButton, `Show the best score, ${(100 * best).toFixed(1)} %`);
    if (image === null) setText(status, "");
    else if (answer === undefined) setText(status, "Running …");
    else if (answer === null) setText(status, "");
    else showStatus(answer, shown.length);
    if (hasShapes) showLegend(answer);
  }

  function showStatus({ records, milliseconds }, number) {
    const all = counted(records.length, "result");
    const shown = number === records.length ? all : `${count(number)} of ${all}`;
    const parts = [`${shown}, ${Math.round(milliseconds)} ms`];
    if (!number) parts.push(bestButton.hidden ? "The model found nothing in this image." : "Nothing scores that high.");
    if (hasShapes && records.length >= maxDetections) {
      parts.push(`The page requested only the ${count(maxDetections)} results with the highest scores.`);
    }
    if (parts.length > 1) parts[0] += ".";
    setText(status, parts.join(" "));
  }

  // A button for each label in the answer, which hides it.
  function showLegend(answer) {
    const counts = new Map();
    for (const { label } of filterShapes(answer?.shapes ?? [], form.filter()))
      counts.set(label, (counts.get(label) ?? 0) + 1);
    for (const label of hidden) counts.set(label, counts.get(label) ?? 0);
    const names = [...counts.keys()].sort();
    const describe = (label) => `${isolated(label)} (${counts.get(label)})`;
    const now = names.map(describe).join();
    if (now === [...legend.children].map((child) => child.textContent).join()) return;
    legend.replaceChildren(
      ...names.map((label) => {
        const toggle = button(describe(label), () => {
          if (!hidden.delete(label)) hidden.add(label);
          toggle.setAttribute("aria-pressed", !hidden.has(label));
          refresh();
        });
        toggle.setAttribute("aria-pressed", !hidden.has(label));
        toggle.title = label;
        return toggle;
      }),
    );
  }

  function display(image) {
    imageViewer.show(image);
    imageViewer.element
      .querySelector(".stage")
      .setAttribute("aria-label", image ? `${image.name} with results` : "Images");
    stage.hidden = image === null;
    refresh();
  }

  function exportedAnswers() {
    return session.images
      .filter((image) => answers.get(image))
      .map((image) => {
        const shapes = filtered(image);
        return { image, shapes, records: shapes.map(({ index }) => answers.get(image).records[index]) };
      });
  }

  const stem = () => imageInputs.shown().name.replace(/\.[^.]*$/, "");
  const downloads = make(
    "div.row",
    { role: "group", "aria-label": "Download", hidden: "" },
    make("span.hint", "Download"),
    button("JSON", async () => {
      const { jsonFile } = await import("./export.js");
      save(jsonFile(model, form.requested(), exportedAnswers()), `${stem()}.json`);
    }),
  );
  if (hasShapes) {
    downloads.append(
      button("PNG", async () => {
        const image = imageInputs.shown();
        save(await toPng(image, filtered(image)), `${stem()}.found.png`);
      }),
      button("COCO", async () => {
        const { coco } = await import("./export.js");
        save(coco(model, exportedAnswers()), `${stem()}.coco.json`);
      }),
    );
  }
  downloads.append(button("Use in code", () => go("request", codeAddress())));
  const stage = make("div", { hidden: "" }, imageViewer.element);
  const sidebar = make(
    "section.panel.sidebar",
    { "aria-label": "Results" },
    form.element,
    status,
    bestButton,
    legend,
    list.element,
    downloads,
  );

  const stop = () => pending.abort();
  return imageTryLayout({ images: imageInputs, stage, sidebar, viewer: imageViewer, stop, setScore: form.setScore });
}
