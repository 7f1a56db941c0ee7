// Which models there are, and what they take.

import { text } from "./text.js";

const SORTS = { IMAGE_TEXT_TO_TEXT: "question", TENSOR: "tensor" };

// What a task is shown: a picture, a question about one, a text, or tensors.
export function sortOf(task) {
  return SORTS[task] ?? (/^(TEXT|TOKEN)_/.test(task) ? "text" : "picture");
}

// What `page/models.json` says (app/server/page/catalogue.py).
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

// The models that can answer, one entry each: of the version that does when none is named.
export function choices(catalogue) {
  return catalogue.models.filter((each) => each.latest && each.state === "READY");
}

export function chosen(catalogue, name) {
  const all = choices(catalogue);
  return all.find((each) => each.name === name) ?? all.find((each) => sortOf(each.task_type) === "picture") ?? all[0];
}
