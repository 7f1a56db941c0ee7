// The Explain view: which parts of an image cause each result.

import { readyModels } from "./catalogue.js";
import { requestJson } from "./connection.js";
import { button, choice, field, save, slider } from "./controls.js";
import { modelView } from "./model_view.js";
import { make, setText } from "./dom.js";
import { shapesOf } from "./drawing.js";
import { percent } from "./format.js";
import { imageInput } from "./image_input.js";
import { base64Of } from "./images.js";
import { colourOf } from "./palette.js";
import { GRADIENT, colourMap, toExplanationPng } from "./saliency.js";
import { sampleFor } from "./samples.js";
import { session } from "./session.js";
import { taskOf } from "./tasks.js";
import { text } from "./text.js";
import { viewer } from "./viewer.js";

const strings = text.explain;
const ID = "explain";
const DEFAULTS = { method: "rise", samples: "400", grid: "8", seed: "0", label: "" };

export const explain = modelView({
  id: ID,
  title: strings.title,
  none: strings.none,
  select: (catalogue) =>
    readyModels(catalogue).filter(
      (model) => model.explained_by === "pixels" && taskOf(model.task_type).takes === "image",
    ),
  create: createExplainView,
});

function createExplainView({ main, content, tools, catalogue, models, message, status }) {
  const view = viewer({ label: strings.image });
  const source = imageInput(main, {
    root: tools.root,
    catalogue,
    onimage: useImage,
    onerror: message.showError,
  });
  const model = choice(
    models.map((model) => [model.name, model.name]),
    () => reset(true),
  );
  const method = choice(Object.entries(strings.methods), () =>
    samples.closest(".field").toggleAttribute("hidden", method.value !== "rise"),
  );
  const samples = make("input", { type: "number", min: 1, max: 100000, required: "" });
  const grid = make("input", { type: "number", min: 2, max: 32, required: "" });
  const seed = make("input", { type: "number", min: 0, max: 4294967295, required: "" });
  const label = choice([], () => {});
  const run = make("button", { class: "primary", type: "submit" }, strings.run);
  const stop = button(strings.stop, () => pending?.abort());
  const clock = make("span", { class: "hint" });
  const opacity = slider({
    label: strings.opacity,
    value: 0.6,
    oninput: paint,
    format: (value) => percent(100 * value).replace(".0", ""),
  });
  const list = make("div", { class: "explanations", role: "radiogroup", "aria-label": strings.results });
  const png = button(strings.png, () => download());
  const about = make("p", { class: "hint" });
  const legend = make("div", { class: "map-gradient", "aria-hidden": "true" });
  legend.style.background = GRADIENT;
  const results = make(
    "section",
    { class: "panel results", "aria-label": strings.results, hidden: "" },
    make("h2", {}, strings.results),
    list,
    opacity.element,
    make(
      "div",
      { class: "map-legend", "aria-hidden": "true" },
      make("span", {}, strings.lowImportance),
      legend,
      make("span", {}, strings.highImportance),
    ),
    about,
    make("div", { class: "actions" }, png),
  );
  const form = make(
    "form",
    { class: "panel form" },
    make("div", { class: "wide" }, field(strings.model, model)),
    make("div", { class: "wide" }, field(strings.method, method)),
    field(strings.samples, samples, strings.samplesHint),
    field(strings.grid, grid, strings.gridHint),
    field(strings.seed, seed),
    field(strings.label, label),
    make("div", { class: "actions" }, run, stop, clock),
  );
  let [image, sample, pending, explained, maps, selected, shownAddress] = [null, "", null, null, [], 0, null];
  let warning = "";
  stop.hidden = true;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    runExplanation();
  });
  content.replaceChildren(
    make(
      "div",
      { class: "with-sidebar" },
      make("div", { class: "main-column" }, source.element, view.element),
      make("div", { class: "sidebar" }, form, results),
    ),
  );

  const current = () => models.find(({ name }) => name === model.value);

  function reset(replaceLabels) {
    [explained, maps] = [null, []];
    results.hidden = true;
    view.overlay(null, 0);
    view.shapes([]);
    if (!replaceLabels) return;
    source.showSamples(current().task_type);
    const { labels, task_type: task } = current();
    label.fill([
      ["", taskOf(task).returns === "classes" ? strings.highestScore : strings.allObjects],
      ...labels.map((name) => [name, name]),
    ]);
  }

  function useImage(next, sampleName) {
    pending?.abort();
    [image, sample] = [next, sampleName];
    session.images = [next];
    message.showError(warning);
    view.show(next);
    reset(false);
  }

  function readForm() {
    const values = {
      method: method.value,
      samples: samples.value,
      grid: grid.value,
      seed: seed.value,
      label: label.value,
    };
    const changed = Object.entries(values).filter(([key, value]) => value !== DEFAULTS[key]);
    return {
      values,
      address: { model: model.value, ...(sample ? { image: sample } : {}), ...Object.fromEntries(changed) },
    };
  }

  async function runExplanation() {
    if (image === null) {
      message.showError(strings.noImage);
      return;
    }
    const { values, address } = readForm();
    shownAddress = new URLSearchParams(address).toString();
    tools.go(ID, address);
    pending?.abort();
    const thisRequest = (pending = new AbortController());
    const started = performance.now();
    const timer = setInterval(() => setText(clock, strings.seconds((performance.now() - started) / 1000)), 100);
    warning = "";
    message.clear();
    reset(false);
    setRunning(true);
    setText(status, strings.working);
    try {
      const answer = await requestExplanation(values, thisRequest.signal);
      const pngs = answer.explanations[0].map((explanation) => explanation.saliency.png);
      const colouredMaps = await Promise.all(pngs.map(colourMap));
      if (thisRequest !== pending) return;
      show(answer, colouredMaps, (performance.now() - started) / 1000);
    } catch (error) {
      if (thisRequest !== pending) return;
      setText(status, error.name === "AbortError" ? strings.stopped : "");
      message.showError(error);
    } finally {
      clearInterval(timer);
      if (thisRequest === pending) setRunning(false);
    }
  }

  function setRunning(running) {
    run.hidden = running;
    stop.hidden = !running;
    setText(clock, "");
    // Do not scroll: on a phone the form is far below the image.
    if (running) stop.focus({ preventScroll: true });
    else if (document.activeElement === document.body) run.focus({ preventScroll: true });
  }

  async function requestExplanation(values, signal) {
    const parameters = { method: values.method, grid: Number(values.grid), seed: Number(values.seed) };
    if (values.method === "rise") parameters.samples = Number(values.samples);
    if (values.label) parameters.label = values.label;
    const body = JSON.stringify({ instances: [{ b64: await base64Of(image.blob) }], parameters });
    const url = new URL(`v1/models/${encodeURIComponent(model.value)}:explain`, tools.root);
    const headers = { "Content-Type": "application/json" };
    return requestJson(url, { method: "POST", headers, body, signal });
  }

  function show(answer, colouredMaps, seconds) {
    [explained, maps] = [answer, colouredMaps];
    const all = answer.explanations[0];
    results.hidden = false;
    setText(status, all.length ? strings.done(all.length, seconds) : strings.nothing);
    opacity.element.hidden = png.hidden = !all.length;
    legend.parentElement.hidden = !all.length;
    setText(about, all.length ? strings.about(all[0].method, all[0].samples) : strings.nothing);
    list.replaceChildren(...all.map((explanation, index) => createOption(explanation, index)));
    if (all.length) choose(0);
  }

  function createOption({ label: name, score }, index) {
    const input = make("input", { type: "radio", name: "explanation", value: index });
    const swatch = make("span", { class: "swatch" });
    swatch.style.background = colourOf(name);
    input.addEventListener("change", () => choose(index));
    return make(
      "label",
      {},
      input,
      swatch,
      make("span", { class: "explanation-label" }, name),
      make("span", { class: "number" }, percent(100 * score)),
    );
  }

  function choose(index) {
    selected = index;
    list.querySelectorAll("input")[index].checked = true;
    paint();
    view.shapes(shapes());
  }

  function shapes() {
    const record = explained.predictions[0][explained.explanations[0][selected].index];
    return record === undefined ? [] : shapesOf(current().task_type, [record], image.width, image.height);
  }

  function paint() {
    if (maps[selected]) view.overlay(maps[selected], opacity.value());
  }

  async function download() {
    const name = `${image.name.replace(/\.[^.]*$/, "")}-${explained.explanations[0][selected].label}.png`;
    save(await toExplanationPng(image, maps[selected], opacity.value(), shapes()), name);
  }

  return {
    change(parameters) {
      if (parameters.toString() === shownAddress) return;
      shownAddress = parameters.toString();
      const isKnown = (name) => models.some((model) => model.name === name);
      const name = parameters.get("model") ?? session.model;
      model.value = isKnown(name) ? name : models[0].name;
      // Keep the warning visible with the first image, which is for another model.
      warning = parameters.has("model") && !isKnown(name) ? strings.unknown(name) : "";
      message.showError(warning);
      const value = (key) => parameters.get(key) ?? DEFAULTS[key];
      [samples.value, grid.value, seed.value] = ["samples", "grid", "seed"].map(value);
      method.value = value("method") in strings.methods ? value("method") : DEFAULTS.method;
      method.dispatchEvent(new Event("change"));
      reset(true);
      label.value = value("label");
      if (label.value !== value("label")) label.value = "";
      const sampleName = parameters.get("image");
      if (sampleName) {
        source.sample(sampleName).then(() => sample === sampleName && !warning && runExplanation());
      } else if (image === null && session.images[0]?.width) {
        source.take(session.images[0]);
      } else if (image === null) {
        const defaultSample = sampleFor(catalogue, current().task_type);
        if (defaultSample) source.sample(defaultSample);
      }
    },
    close() {
      pending?.abort();
      source.close();
      view.close();
    },
  };
}
