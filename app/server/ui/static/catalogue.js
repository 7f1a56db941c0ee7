// The models of the server and their inputs.

import { requestJson } from "./connection.js";
import { assignColours } from "./palette.js";
import { taskOf } from "./tasks.js";

const POLL_MS = 1000;
// Models that show most in an image come first, and bare graphs last.
const KINDS = ["image", "question", "text", "tensor"];
const GEOMETRIES = ["box", "oriented", "contour", null];

function rank(model) {
  const { takes, geometry } = taskOf(model.task_type);
  return model.default ? -1 : 10 * KINDS.indexOf(takes) + GEOMETRIES.indexOf(geometry);
}

// The kind of input a task takes: an image, a question about an image, a text, or tensors.
export function inputKind(task) {
  return taskOf(task).takes;
}

// Fetch page/models.json (app/server/ui/catalogue.py).
export async function fetchCatalogue(root) {
  const catalogue = await requestJson(new URL("page/models.json", root));
  assignColours(catalogue.models);
  return catalogue;
}

// Fetch the catalogue again every second while `isWaiting(catalogue)` and a model is loading.
export async function waitForModels(root, isWaiting) {
  for (;;) {
    const catalogue = await fetchCatalogue(root);
    const isLoading = catalogue.models.some((model) => model.state === "LOADING");
    if (!isLoading || !isWaiting(catalogue)) return catalogue;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

// The ready models, one entry each: the version that answers when a request names none. The default model comes first.
export function readyModels(catalogue) {
  const ready = catalogue.models.filter((model) => model.latest && model.state === "READY");
  return ready.sort((one, other) => rank(one) - rank(other));
}

export function chooseModel(catalogue, name) {
  const models = readyModels(catalogue);
  return models.find((model) => model.name === name) ?? models[0];
}
