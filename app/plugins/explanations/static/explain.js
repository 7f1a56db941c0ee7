// In Try: a button on each result that shows which parts of the image cause it.

import { requestJson } from "./connection.js";
import { button, choice, field, make, save, setText, slider, stopwatch } from "./dom.js";
import { overlap, shapesOf, toPng } from "./drawing.js";
import { count, percent } from "./format.js";
import { base64Of } from "./images.js";

// Inferno, in equal steps: its lightness increases evenly, so it is readable without colour vision.
const COLOUR_STOPS = [
  [0, 0, 4],
  [87, 16, 110],
  [188, 55, 84],
  [249, 142, 9],
  [252, 255, 164],
];
const MAX_SIDE = 1280;

const CSS_STOPS = COLOUR_STOPS.map((colour) => `rgb(${colour.join(" ")})`);
const GRADIENT = `linear-gradient(to right, ${CSS_STOPS.join(", ")})`;

const METHODS = { rise: "RISE: random masks", occlusion: "Occlusion: a sliding window" };
const MAX_OBJECTS = 100;
const MEANING = "The map shows where the reasons are, not how confident the model is.";
const UNEXPLAINED = "The model does not return this result any more. Run it again, or choose another result.";

export async function extend(container, { tools, model, message, images }) {
  if (!images) return null;
  const explainers = await requestJson(new URL("page/explain.json", tools.root));
  if (explainers[model.name] !== "pixels") return null;
  const title = make("h2");
  const status = make("p.hint", { role: "status" });
  const stop = button("Stop", () => pending.abort());
  const opacity = slider({
    label: "Opacity of the map",
    value: 0.6,
    oninput: paint,
    format: (value) => percent(100 * value).replace(".0", ""),
  });
  const gradient = make("div.map-gradient");
  gradient.style.background = GRADIENT;
  const ends = [make("span", "matters little"), gradient, make("span", "matters most")];
  const legend = make("div.map-legend", { "aria-hidden": "true" }, ...ends);
  const shown = make(
    "div",
    opacity.element,
    legend,
    make("div.actions", button("Save as PNG", download), button("Hide the map", hide)),
  );
  const number = (min, max, value) => make("input", { type: "number", min, max, value, required: "" });
  const [samples, grid, seed] = [number(1, 100000, 400), number(2, 32, 8), number(0, 4294967295, 0)];
  const method = choice(Object.entries(METHODS), () => {
    // Browsers check the values of hidden fields too, but not of disabled ones.
    samples.disabled = samples.closest(".field").hidden = method.value !== "rise";
  });
  const settings = make(
    "form.form",
    make("div.wide", field("Method", method)),
    field("Samples", samples, "Number of masked copies of the image"),
    field("Grid", grid, "Cells along the longer side"),
    field("Seed", seed),
    make("div.actions", make("button.plain", { type: "submit" }, "Explain again")),
  );
  const element = make(
    "section.explanation",
    { "aria-label": "Explanation", hidden: "" },
    title,
    status,
    stop,
    shown,
    make("details", make("summary", "Settings"), settings),
  );
  container.append(element);
  let [image, result, map, pending] = [null, null, null, new AbortController()];
  // The answer to the last request serves all objects of its image.
  let [answer, answered] = [null, ""];

  images.addAction("Explain", (index) => {
    result = images.results().find((candidate) => candidate.index === index);
    image = images.shown();
    explain();
  });
  images.onchange((current) => current !== image && !element.hidden && hide());
  settings.addEventListener("submit", (event) => {
    event.preventDefault();
    explain();
  });

  function hide() {
    pending.abort();
    [image, result, map, answer, answered] = [null, null, null, null, ""];
    element.hidden = true;
    images.viewer.overlay(null, 0);
  }

  function readParameters() {
    const numbers = { grid: Number(grid.value), seed: Number(seed.value) };
    const parameters = { ...images.parameters(), method: method.value, ...numbers };
    if (method.value === "rise") parameters.samples = Number(samples.value);
    if (model.geometry === null) return { ...parameters, label: result.label };
    return { ...parameters, max_objects: MAX_OBJECTS };
  }

  async function explain() {
    pending.abort();
    const { signal } = (pending = new AbortController());
    message.clear();
    setText(title, `Why ${result.label}`);
    map = null;
    images.viewer.overlay(null, 0);
    [element.hidden, shown.hidden, stop.hidden] = [false, true, false];
    const show = (seconds) => setText(status, `Running the model on masked copies, ${seconds}`);
    const stopTimer = stopwatch(show);
    show("0 s");
    try {
      const parameters = readParameters();
      const request = JSON.stringify(parameters);
      if (answered !== request) [answer, answered] = [await send(parameters, signal), request];
      const found = findExplanation();
      if (found === undefined) throw new Error(UNEXPLAINED);
      const coloured = await colourMap(found.saliency.png);
      if (signal.aborted) return;
      map = coloured;
      const name = found.method === "rise" ? "RISE" : "Occlusion";
      setText(status, `${name}, ${count(found.samples)} masked copies. ${MEANING}`);
      shown.hidden = false;
      paint();
    } catch (error) {
      // Another request, or another image, has taken the place of this one.
      if (signal !== pending.signal || image === null) return;
      setText(status, error.name === "AbortError" ? "Stopped" : "");
      message.showError(error);
    } finally {
      stopTimer();
      if (signal === pending.signal) stop.hidden = true;
    }
  }

  async function send(parameters, signal) {
    const body = JSON.stringify({ instances: [{ b64: await base64Of(image.blob) }], parameters });
    const url = new URL(`v1/models/${encodeURIComponent(model.name)}:explain`, tools.root);
    const headers = { "Content-Type": "application/json" };
    return requestJson(url, { method: "POST", headers, body, signal });
  }

  // The explanation of the result: that of the object of its label which overlaps it most.
  function findExplanation() {
    const all = answer.explanations[0].filter(({ label }) => label === result.label);
    if (model.geometry === null) return all[0];
    const shapes = shapesOf(model.task_type, answer.predictions[0], image.width, image.height);
    const overlaps = new Map(all.map((explanation) => [explanation, overlap(shapes[explanation.index], result)]));
    const best = all.sort((one, other) => overlaps.get(other) - overlaps.get(one))[0];
    return overlaps.get(best) > 0.5 ? best : undefined;
  }

  function paint() {
    if (map !== null) images.viewer.overlay(map, opacity.value());
  }

  async function download() {
    const name = `${image.name.replace(/\.[^.]*$/, "")}-${result.label}.png`;
    const shapes = model.geometry === null ? [] : [result];
    save(await toPng(image, shapes, { bitmap: map, opacity: opacity.value() }), name);
  }

  return { close: () => pending.abort() };
}

// Colour a grey base64 PNG of an explanation, no larger than a screen shows.
async function colourMap(png) {
  const bytes = Uint8Array.from(atob(png), (character) => character.charCodeAt(0));
  const grey = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const scale = Math.min(1, MAX_SIDE / Math.max(grey.width, grey.height));
  const canvas = new OffscreenCanvas(Math.ceil(grey.width * scale), Math.ceil(grey.height * scale));
  const context = canvas.getContext("2d");
  context.drawImage(grey, 0, 0, canvas.width, canvas.height);
  const image = context.getImageData(0, 0, canvas.width, canvas.height);
  const colours = Array.from({ length: 256 }, (_, value) => mapColour(value / 255));
  for (let offset = 0; offset < image.data.length; offset += 4) {
    image.data.set(colours[image.data[offset]], offset);
  }
  context.putImageData(image, 0, 0);
  return createImageBitmap(canvas);
}

function mapColour(value) {
  const position = value * (COLOUR_STOPS.length - 1);
  const low = Math.min(Math.floor(position), COLOUR_STOPS.length - 2);
  const share = position - low;
  const next = COLOUR_STOPS[low + 1];
  return [...COLOUR_STOPS[low].map((start, channel) => Math.round(start + share * (next[channel] - start))), 255];
}
