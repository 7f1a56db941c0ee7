// Try a model that returns classes or shapes for images.
//
// Each image is requested once with a low threshold, and the confidence slider filters the answer. If the server
// records requests, they ask for exactly what is shown.

import { comparison } from "./compare.js";
import { button, make, setText, stopwatch } from "./dom.js";
import { downloadButtons } from "./downloads.js";
import { filterResults, resultsOf } from "./drawing.js";
import { count, counted, isolated } from "./format.js";
import { imageList, imageTryLayout } from "./image_list.js";
import { createRow, imageTable } from "./image_table.js";
import { ImageError } from "./images.js";
import { maxDetectionsOf, requestImage } from "./inference.js";
import { parameterForm } from "./parameters.js";
import { recordList } from "./results.js";
import { session } from "./session.js";
import { viewer } from "./viewer.js";

const MAX_CONCURRENT = 4;

export function createImageTry({ tools, root, go, catalogue, model, message, area }) {
  const imageViewer = viewer({ label: "Images" });
  const list = recordList({ onhover: (index) => imageViewer.choose(index) });
  const onrequest = () => {
    message.clear();
    requestAll(session.images, true);
  };
  const onfilter = () => {
    refresh();
    for (const image of session.images) showRow(image);
    showTable();
  };
  const exact = tools.observed;
  const form = parameterForm(model, { onfilter, onrequest, onscore: () => exact && onrequest() });
  const status = make("p.hint", { role: "status" });
  const stopButton = button("Stop", () => pending.abort());
  const legend = make("div.legend", { role: "group", "aria-label": "Labels" });
  const table = imageTable({ onstop: () => pending.abort() });
  const imageInputs = imageList({
    root,
    area,
    catalogue,
    model,
    message,
    run: table.run,
    observed: tools.observed,
    onshow: display,
    onnew,
    onsample: (sample) => go("try", { ...address(), sample }),
  });
  const hasShapes = model.geometry !== null;
  const maxDetections = maxDetectionsOf(model);
  // The answer of each image: { records, milliseconds } or { error }.
  let answers = new Map();
  let rows = new Map();
  let hidden = new Set();
  let pending = new AbortController();
  let [tableStatus, skipped, seconds] = ["", "", ""];
  let [isRunning, isErrorShown] = [false, false];
  let bestScore = 0;
  const bestButton = button("", () => form.setScore(bestScore));
  bestButton.hidden = true;
  const listeners = [];

  imageViewer.onhover = (index) => list.choose(index);

  function onnew(images, note) {
    skipped = note;
    const openImage = (image) => {
      imageInputs.choose(image);
      imageViewer.element.scrollIntoView({ block: "center" });
    };
    rows = new Map(images.length > 1 ? images.map((image) => [image, createRow(image, openImage)]) : []);
    table.reset();
    requestAll(images);
  }

  async function requestAll(images, keepAnswers = false) {
    pending.abort();
    const { signal } = (pending = new AbortController());
    const started = performance.now();
    // With new parameters, keep the old answers visible until new ones arrive.
    if (!keepAnswers) answers = new Map();
    [isRunning, tableStatus, seconds] = [true, `Sending ${counted(images.length, "image")} …`, ""];
    const stopTimer = stopwatch((text) => {
      seconds = text;
      showProgress();
    });
    onfilter();
    const queue = [...images];
    const worker = async () => {
      for (let image = queue.shift(); image && !signal.aborted; image = queue.shift()) {
        await requestOne(image, signal);
      }
    };
    await Promise.all(Array.from({ length: MAX_CONCURRENT }, worker));
    stopTimer();
    if (signal !== pending.signal) return;
    const failed = [...answers.values()].filter(({ error }) => error).length;
    const done = answers.size - failed;
    isRunning = false;
    tableStatus = signal.aborted
      ? `Stopped after ${count(done)} of ${count(images.length)} images`
      : `${count(done)} answered${failed ? `, ${count(failed)} failed` : ""} in ${((performance.now() - started) / 1000).toFixed(1)} s`;
    showTable();
    showProgress();
  }

  async function requestOne(image, signal) {
    let answer;
    try {
      const parameters = exact ? form.requested() : form.ownParameters();
      answer = await requestImage({ root, catalogue, model, image, parameters, exact, signal });
    } catch (error) {
      if (error.name === "AbortError") return;
      const isLost = error.name === "ConnectionLost";
      answer = { error: isLost ? error : new ImageError(image.name, error.message, error.details) };
    }
    if (signal.aborted) return;
    answers.set(image, answer);
    showRow(image);
    if (image === imageInputs.shown()) refresh();
    showTable();
  }

  // The address has no place for the user's own images.
  function address() {
    const [score, sample] = [form.score(), imageInputs.sampleName()];
    return {
      model: model.name,
      ...(sample ? { sample } : {}),
      ...(score === null ? {} : { score }),
      ...compared.address(),
    };
  }

  // The filtered answer of an image: shapes, or records with their index.
  function filtered(image) {
    const records = answers.get(image)?.records;
    if (!records) return [];
    const { score, max } = form.filter();
    const candidates = filterResults(resultsOf(model, records, image), { score });
    return candidates.filter((result) => !hidden.has(result.label)).slice(0, max);
  }

  function showRow(image) {
    rows.get(image)?.show(answers.get(image), model.task_type, filtered(image));
  }

  function showTable() {
    table.show([...rows.values()], `${skipped} ${tableStatus}`.trim(), isRunning);
  }

  function refresh() {
    session.parameters = form.requested();
    const image = imageInputs.shown();
    if (image !== null) tools.save(address());
    const answer = image === null ? undefined : answers.get(image);
    const shown = image === null ? [] : filtered(image);
    imageViewer.shapes(hasShapes && image?.width ? shown : []);
    list.show(shown);
    downloads.show(answer?.records);
    const best = shown.length ? 0 : Math.max(0, ...(answer?.records ?? []).map((record) => record.score));
    // The slider has two decimals.
    bestScore = Math.floor(100 * best) / 100;
    bestButton.hidden = !bestScore;
    setText(bestButton, `Show the best score, ${(100 * best).toFixed(1)} %`);
    if (answer?.error) message.showError(answer.error);
    else if (isErrorShown) message.clear();
    isErrorShown = Boolean(answer?.error);
    if (image === null || answer?.error) setText(status, "");
    else if (answer !== undefined) showStatus(answer, shown.length);
    showProgress();
    if (hasShapes) showLegend(answer);
    for (const listener of listeners) listener(image);
  }

  // A server that does not answer shows for how long, and how to stop waiting.
  function showProgress() {
    const image = imageInputs.shown();
    const isWaiting = image !== null && !answers.has(image);
    stopButton.hidden = !isWaiting || !isRunning || !seconds;
    if (isWaiting) setText(status, isRunning ? `Running … ${seconds}` : "Stopped");
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

  // A button for each label with several results, which hides them.
  function showLegend(answer) {
    const counts = new Map();
    for (const { label } of filterResults(answer?.records ?? [], form.filter()))
      counts.set(label, (counts.get(label) ?? 0) + 1);
    for (const label of hidden) counts.set(label, counts.get(label) ?? 0);
    const names = [...counts.keys()].filter((label) => hidden.has(label) || counts.get(label) > 1).sort();
    const describe = (label) => `${isolated(label)} (${counts.get(label)})`;
    const now = names.map(describe).join();
    if (now === [...legend.children].map((child) => child.textContent).join()) return;
    legend.replaceChildren(
      ...names.map((label) => {
        const toggle = button(describe(label), () => {
          if (!hidden.delete(label)) hidden.add(label);
          toggle.setAttribute("aria-pressed", !hidden.has(label));
          onfilter();
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
    for (const [other, { element }] of rows) element.classList.toggle("selected", other === image);
    refresh();
  }

  const downloads = downloadButtons(model, {
    shown: imageInputs.shown,
    results: filtered,
    answers: () => answers,
    rows: () => [...rows.values()],
    parameters: form.requested,
  });
  const codeButton = button("Use in code", () => {
    const score = form.score();
    go("request", { model: model.name, ...(score === null ? {} : { score }) });
  });
  const stage = make("div.stages", { hidden: "" }, imageViewer.element);
  // What other files add to: the shown image, its results, and what is drawn.
  const images = {
    viewer: imageViewer,
    stage,
    shown: imageInputs.shown,
    results: () => filtered(imageInputs.shown()),
    parameters: form.requested,
    ownParameters: form.ownParameters,
    addAction: list.addAction,
    onchange: (listener) => listeners.push(listener),
  };
  const compared = comparison({ tools, catalogue, model, images, message, onchange: refresh });
  const sidebar = make(
    "section.panel.sidebar",
    { "aria-label": "Results" },
    form.element,
    status,
    stopButton,
    bestButton,
    legend,
    list.element,
    downloads.element,
    make("div.row", codeButton, compared.button),
    form.more,
  );
  const stop = () => {
    pending.abort();
    compared.close();
  };
  return {
    ...imageTryLayout({
      images: imageInputs,
      stage,
      sidebar,
      viewer: imageViewer,
      stop,
      below: [compared.element, table.element],
    }),
    images,
    compared: compared.address,
    change(parameters) {
      if (parameters.has("score")) form.setScore(Number.parseFloat(parameters.get("score")));
      compared.change(parameters);
    },
  };
}
