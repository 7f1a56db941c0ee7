// A command that sends a first request, for a server without traffic.

import { taskOf } from "./catalogue.js";
import { codeBlock } from "./code_block.js";
import { make } from "./dom.js";

const HINT = "Run this command in a shell to send the first request:";
const IMAGE_DATA = "$(base64 -w0 image.jpg)";
// The example model has learned this question, so its words must not change.
const PROMPTS = ', "parameters": {"prompts": ["What is in the picture?"]}';

// The first image model, or else a text model. Tensor models are skipped: their shapes differ.
function chooseModel(models) {
  const ready = models.filter((model) => model.state === "READY" && taskOf(model.task).takes !== "tensor");
  return ready.find((model) => taskOf(model.task).takes === "image") ?? ready[0];
}

function command(root, { name, task }) {
  const { takes } = taskOf(task);
  const url = new URL(`v2/models/${encodeURIComponent(name)}/infer`, root);
  const data = takes === "text" ? "A sentence to read." : IMAGE_DATA;
  const parameters = takes === "question" ? PROMPTS : "";
  return [
    `curl -s ${url} -H 'Content-Type: application/json' -d @- <<JSON`,
    `{"inputs": [{"name": "input", "shape": [1], "datatype": "BYTES", "data": ["${data}"]${parameters}}]}`,
    "JSON",
  ].join("\n");
}

export function curlExample(root) {
  const hint = make("p", HINT);
  const code = codeBlock(HINT, "shell");
  const schema = new URL("schema", root);
  const link = make("a", { href: schema }, schema.pathname);
  let shown = "";
  const help = make("p.hint", "The inputs of each model are described at ", link);
  return {
    element: make("div", hint, code.element, help),
    show(models) {
      const model = chooseModel(models);
      hint.hidden = model === undefined;
      const value = model === undefined ? "" : command(root, model);
      // Leave an unchanged command alone, so that it can be selected.
      if (value !== shown) code.show((shown = value));
    },
  };
}
