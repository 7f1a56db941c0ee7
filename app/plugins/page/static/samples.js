// Sample images: which suit a model, their thumbnails, and loading them.

import { request } from "./connection.js";
import { make } from "./dom.js";
import { newImage } from "./images.js";

const THUMBNAIL_SIZE = 44;

// The samples that suit a model, the best first: those of its task that show something that it knows.
function samplesFor(catalogue, { task_type: task, labels, layout }) {
  const words = new Set([layout, ...labels.flatMap((label) => label.toLowerCase().split(/\W+/))]);
  const ofTask = catalogue.samples.filter((sample) => sample.task_types.includes(task));
  const known = ofTask.filter(({ shows }) => shows.some((word) => words.has(word)));
  return known.length || labels.length ? known : ofTask;
}

export function sampleFor(catalogue, model) {
  return samplesFor(catalogue, model)[0]?.name;
}

// Whether a sample may be shown to a model; unknown images belong to the user and suit every model.
export function suits(catalogue, name, model) {
  return name === undefined || samplesFor(catalogue, model).some((sample) => sample.name === name);
}

function sampleUrl(root, name) {
  return new URL(`page/samples/${encodeURIComponent(name)}`, root);
}

export async function loadSample(root, name) {
  const response = await request(sampleUrl(root, name));
  if (!response.ok) throw new Error(`There is no sample called ${name}`);
  return { ...newImage(await response.blob(), name), sample: name };
}

// Thumbnails of the samples that suit a model. The first is large, with a hint, while no image is shown.
export function sampleThumbnails({ root, catalogue, model, hint, onchoose }) {
  const side = { width: THUMBNAIL_SIZE, height: THUMBNAIL_SIZE };
  const buttons = samplesFor(catalogue, model).map(({ name }) => {
    const image = make("img", { src: sampleUrl(root, name), alt: "", ...side });
    const button = make("button", { type: "button", title: name, "aria-label": `Sample ${name}` }, image);
    button.addEventListener("click", () => onchoose(name));
    return button;
  });
  const attributes = { role: "group", "aria-label": "Samples" };
  const element = make("div.samples", attributes, make("p.hint", hint), ...buttons);
  element.hidden = !buttons.length;
  return element;
}
