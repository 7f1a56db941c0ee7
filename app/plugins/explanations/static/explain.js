// The Explain view: which parts of an image cause each result.

import { fetchCatalogue, notImageModel, readyModels } from "./catalogue.js";
import { requestJson } from "./connection.js";
import { button, choice, field, make, save, setText, slider } from "./dom.js";
import { shapesOf, toPng } from "./drawing.js";
import { count, counted, percent } from "./format.js";
import { imageInput } from "./image_input.js";
import { base64Of } from "./images.js";
import { modelChoice, modelView } from "./model_view.js";
import { swatch } from "./palette.js";
import { GRADIENT, colourMap } from "./saliency.js";
import { sampleFor } from "./samples.js";
import { session } from "./session.js";
import { viewer } from "./viewer.js";

const DEFAULTS = { method: "rise", samples: "400", grid: "8", seed: "0", label: "" };

const METHODS = { rise: "RISE: random masks", occlusion: "Occlusion: a sliding window" };
const NOTHING = "The model returned no results for this image, so there is nothing to explain.";

export const open = modelView({
  title: "Explain",
  none: "No model can be explained here. Load a model for image classification, detection or segmentation.",
  select: (catalogue) =>
    readyModels(catalogue).filter(({ name, takes }) => takes === "image" && catalogue.explainers[name] === "pixels"),
  create: createExplainView,
  fetchModels: fetchExplained,
});

// The catalogue, with what explains each model (app/plugins/explanations/start.py).
async function fetchExplained(root) {
  const url = new URL("page/explain.json", root);
  const [catalogue, explainers] = await Promise.all([fetchCatalogue(root), requestJson(url)]);
  return { ...catalogue, explainers };
}

function createExplainView({ main, content, tools, catalogue, models, message, status }) {
  const view = viewer({ label: "Image with its saliency map" });
  const source = imageInput(main, {
    root: tools.root,
    catalogue,
    onimage: useImage,
    onerror: message.showError,
  });
  const model = modelChoice(models, () => reset(true));
  const { current } = model;
  const method = choice(Object.entries(METHODS), () => {
    // Browsers check the values of hidden fields too, but not of disabled ones.
    samples.disabled = samples.closest(".field").hidden = method.value !== "rise";
  });
  const samples = make("input", { type: "number", min: 1, max: 100000, required: "" });
  const grid = make("input", { type: "number", min: 2, max: 32, required: "" });
  const seed = make("input", { type: "number", min: 0, max: 4294967295, required: "" });
  const label = choice([], () => {});
  const run = make("button.primary", { type: "submit" }, "Explain");
  const stop = button("Stop", () => pending?.abort());
  const clock = make("span.hint");
  const opacity = slider({
    label: "Opacity of the map",
    value: 0.6,
    oninput: paint,
    format: (value) => percent(100 * value).replace(".0", ""),
  });
  const list = make("div.explanations", { role: "radiogroup", "aria-label": "Results" });
  const png = button("Save as PNG", () => download());
  const about = make("p.hint");
  const legend = make("div.map-gradient", { "aria-hidden": "true" });
  legend.style.background = GRADIENT;
  const results = make(
    "section.panel.results",
    { "aria-label": "Results", hidden: "" },
    make("h2", "Results"),
    list,
    opacity.element,
    make(
      "div.map-legend",
      { "aria-hidden": "true" },
      make("span", "matters little"),
      legend,
      make("span", "matters most"),
    ),
    about,
    make("div.actions", png),
  );
  const form = make(
    "form.panel.form",
    make("div.wide", field("Model", model)),
    make("div.wide", field("Method", method)),
    field("Samples", samples, "Number of masked copies of the image"),
    field("Grid", grid, "Cells along the longer side"),
    field("Seed", seed),
    field("Class", label),
    make("div.actions", run, stop, clock),
  );
  let [image, sample, pending, explained, maps, selected, shownAddress] = [null, "", null, null, [], 0, null];
  let warning = "";
  stop.hidden = true;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    runExplanation();
  });
  content.replaceChildren(
    make("div.with-sidebar", make("div.main-column", source.element, view.element), make("div.sidebar", form, results)),
  );

  function reset(replaceLabels) {
    [explained, maps] = [null, []];
    results.hidden = true;
    view.overlay(null, 0);
    view.shapes([]);
    if (!replaceLabels) return;
    source.showSamples(current().task_type);
    const { labels, returns } = current();
    const all = returns === "classes" ? "highest score" : "all objects";
    label.fill([["", all], ...labels.map((name) => [name, name])]);
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
      message.showError("Choose an image first");
      return;
    }
    const { values, address } = readForm();
    shownAddress = new URLSearchParams(address).toString();
    tools.go("explain", address);
    pending?.abort();
    const thisRequest = (pending = new AbortController());
    const started = performance.now();
    const seconds = () => ((performance.now() - started) / 1000).toFixed(1);
    const timer = setInterval(() => setText(clock, `${seconds()} s`), 100);
    warning = "";
    message.clear();
    reset(false);
    setRunning(true);
    setText(status, "Running the model on masked copies of the image …");
    try {
      const answer = await requestExplanation(values, thisRequest.signal);
      const pngs = answer.explanations[0].map((explanation) => explanation.saliency.png);
      const colouredMaps = await Promise.all(pngs.map(colourMap));
      if (thisRequest !== pending) return;
      show(answer, colouredMaps, seconds());
    } catch (error) {
      if (thisRequest !== pending) return;
      setText(status, error.name === "AbortError" ? "Stopped" : "");
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
    setText(status, all.length ? `${counted(all.length, "result")} explained in ${seconds} s` : NOTHING);
    opacity.element.hidden = png.hidden = !all.length;
    legend.parentElement.hidden = !all.length;
    setText(about, all.length ? describe(all[0]) : NOTHING);
    list.replaceChildren(...all.map((explanation, index) => createOption(explanation, index)));
    if (all.length) choose(0);
  }

  function createOption({ label: name, score }, index) {
    const input = make("input", { type: "radio", name: "explanation", value: index });
    input.addEventListener("change", () => choose(index));
    const title = make("span.explanation-label", name);
    return make("label", input, swatch(name), title, make("span.number", percent(100 * score)));
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
    save(await toPng(image, shapes(), { bitmap: maps[selected], opacity: opacity.value() }), name);
  }

  return {
    change(parameters) {
      if (parameters.toString() === shownAddress) return;
      shownAddress = parameters.toString();
      const name = parameters.get("model") ?? session.model;
      model.value = (model.find(name) ?? models[0]).name;
      // Keep the warning visible with the first image, which is for another model.
      warning = parameters.has("model") && !model.find(name) ? notImageModel(name) : "";
      message.showError(warning);
      const value = (key) => parameters.get(key) ?? DEFAULTS[key];
      [samples.value, grid.value, seed.value] = ["samples", "grid", "seed"].map(value);
      method.value = value("method") in METHODS ? value("method") : DEFAULTS.method;
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

function describe({ method, samples }) {
  const sentence = "The map shows where the reasons are, not how confident the model is.";
  return `${method === "rise" ? "RISE" : "Occlusion"}, ${count(samples)} masked copies. ${sentence}`;
}
