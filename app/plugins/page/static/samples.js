// Sample images: which suit a task, their thumbnails, and loading them.

import { request } from "./connection.js";
import { make } from "./dom.js";
import { newImage } from "./images.js";

const THUMBNAIL_SIZE = 56;

// The samples that suit a task, the best first.
function samplesFor(catalogue, task) {
  return catalogue.samples.filter((sample) => sample.task_types.includes(task));
}

export function sampleFor(catalogue, task) {
  return samplesFor(catalogue, task)[0]?.name;
}

// Whether a sample may be shown to a model of this task; unknown images belong to the user and suit every task.
export function suits(catalogue, name, task) {
  return name === undefined || samplesFor(catalogue, task).some((sample) => sample.name === name);
}

function sampleUrl(root, name) {
  return new URL(`page/samples/${encodeURIComponent(name)}`, root);
}

export async function loadSample(root, name) {
  const response = await request(sampleUrl(root, name));
  if (!response.ok) throw new Error(`There is no sample called ${name}`);
  return { ...newImage(await response.blob(), name), sample: name };
}

// Thumbnails of the samples that suit a task: { element, show(task) }.
export function sampleThumbnails({ root, catalogue, onchoose }) {
  const element = make("div.samples", { role: "group", "aria-label": "Samples" });
  return {
    element,
    show(task) {
      const side = { width: THUMBNAIL_SIZE, height: THUMBNAIL_SIZE };
      const buttons = samplesFor(catalogue, task).map(({ name }) => {
        const image = make("img", { src: sampleUrl(root, name), alt: "", ...side });
        const button = make("button", { type: "button", title: name, "aria-label": `Sample ${name}` }, image);
        button.addEventListener("click", () => onchoose(name));
        return button;
      });
      element.hidden = !buttons.length;
      element.replaceChildren(make("span.hint", "Samples"), ...buttons);
    },
  };
}
