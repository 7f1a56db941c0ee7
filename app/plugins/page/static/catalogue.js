// The models of the server and their tasks.

import { requestJson } from "./connection.js";
import { assignColours } from "./palette.js";

// Models that show most in an image come first, and bare graphs last.
const KINDS = ["image", "question", "text", "tensor"];
const GEOMETRIES = ["box", "oriented", "contour", null];

// Names of task types that do not say it.
const NAMES = { IMAGE_TEXT_TO_TEXT: "Questions about images", TENSOR: "Tensors" };
// What each task type takes and returns: `TaskType` of the server (tasks/task.py), which it writes into the page.
const TASKS = JSON.parse(document.documentElement.dataset.tasks);
// The type of a model that is not loaded, or of a recording that another server made.
const UNKNOWN = { takes: "tensor", returns: "tensors", geometry: null };

// The name of a task type for people.
export function taskName(type) {
  const name = type.toLowerCase().replaceAll("_", " ");
  return NAMES[type] ?? name[0].toUpperCase() + name.slice(1);
}

// { takes, returns, geometry } of a task type.
export function taskOf(name) {
  return TASKS[name] ?? UNKNOWN;
}

export const NO_MODELS = "No model is ready. The Models view shows why.";
export const notImageModel = (name) =>
  `${name} cannot be used here. Choose a ready model for image classification, detection or segmentation.`;
export const notReady = (name) => `No model called ${name} is ready. The Models view lists all models.`;

function rank({ default: isDefault, takes, geometry }) {
  return isDefault ? -1 : 10 * KINDS.indexOf(takes) + GEOMETRIES.indexOf(geometry);
}

// Fetch page/models.json (app/plugins/page/catalogue.py). Each model also gets what its task takes and returns.
export async function fetchCatalogue(root) {
  const catalogue = await requestJson(new URL("page/models.json", root));
  catalogue.models = catalogue.models.map((model) => ({ ...model, ...taskOf(model.task_type) }));
  assignColours(catalogue);
  return catalogue;
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
