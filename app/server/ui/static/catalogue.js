// The models of the server and their inputs.

import { text } from "./text.js";

const INPUT_KINDS = { IMAGE_TEXT_TO_TEXT: "question", TENSOR: "tensor" };

// The kind of input a task takes: an image, a question about an image, a text, or tensors.
export function inputKind(task) {
  return INPUT_KINDS[task] ?? (/^(TEXT|TOKEN)_/.test(task) ? "text" : "image");
}

// Fetch page/models.json (app/server/ui/catalogue.py).
export async function fetchCatalogue(root) {
  let response;
  try {
    response = await fetch(new URL("page/models.json", root));
  } catch {
    throw new Error(text.try.unreachable);
  }
  if (!response.ok) throw new Error(text.try.refused(response.status));
  return response.json();
}

// The ready models, one entry each: the version that answers when a request names none.
export function readyModels(catalogue) {
  return catalogue.models.filter((model) => model.latest && model.state === "READY");
}

export function chooseModel(catalogue, name) {
  const models = readyModels(catalogue);
  const imageModel = models.find((model) => inputKind(model.task_type) === "image");
  return models.find((model) => model.name === name) ?? imageModel ?? models[0];
}
