// The models of the server and their inputs.

import { text } from "./text.js";

const SORTS = { IMAGE_TEXT_TO_TEXT: "question", TENSOR: "tensor" };

// The kind of input a task takes: an image, a question about an image, a text, or tensors.
export function sortOf(task) {
  return SORTS[task] ?? (/^(TEXT|TOKEN)_/.test(task) ? "text" : "picture");
}

// Fetch page/models.json (app/server/page/catalogue.py).
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
export function choices(catalogue) {
  return catalogue.models.filter((model) => model.latest && model.state === "READY");
}

export function chosen(catalogue, name) {
  const all = choices(catalogue);
  return all.find((model) => model.name === name) ?? all.find((model) => sortOf(model.task_type) === "picture") ?? all[0];
}
