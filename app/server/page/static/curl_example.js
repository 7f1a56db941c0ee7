// A command that sends a first request, for a server without traffic.

import { make, say } from "./dom.js";
import { text } from "./text.js";

const words = text.metrics;
const PICTURE = `$(base64 -w0 ${words.picture})`;

function inputs(task) {
  if (task === "IMAGE_TEXT_TO_TEXT") return [PICTURE, `, "parameters": {"prompts": ["${words.question}"]}`];
  if (task.startsWith("TEXT_") || task.startsWith("TOKEN_")) return [words.sentence, ""];
  return [PICTURE, ""];
}

// The first image model, or else a text model. Tensor models are skipped: their shapes differ.
function choice(models) {
  const ready = models.filter((model) => model.state === "READY" && model.task !== "" && model.task !== "TENSOR");
  const plain = ready.filter((model) => !/^(TEXT|TOKEN)_|_TO_TEXT$/.test(model.task));
  return plain[0] ?? ready[0];
}

function command(root, { name, task }) {
  const [data, parameters] = inputs(task);
  const url = new URL(`v2/models/${encodeURIComponent(name)}/infer`, root);
  return [
    `curl -s ${url} -H 'Content-Type: application/json' -d @- <<JSON`,
    `{"inputs": [{"name": "input", "shape": [1], "datatype": "BYTES", "data": ["${data}"]${parameters}}]}`,
    "JSON",
  ].join("\n");
}

export function example(root) {
  const code = make("code");
  const hint = make("p", {}, words.emptyHint);
  const shell = make("pre", { tabindex: "0", role: "group", "aria-label": words.emptyHint }, code);
  const copy = make("button", { type: "button" }, words.copy);
  const schema = new URL("schema", root);
  const help = make("p", { class: "hint" }, `${words.emptyHelp} `, make("a", { href: schema }, schema.pathname));
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(code.textContent);
    say(copy, words.copied);
    setTimeout(() => say(copy, words.copy), 2000);
  });
  // Browsers allow the clipboard only over HTTPS or on a loopback address.
  copy.hidden = !window.isSecureContext;
  return {
    element: make("div", {}, hint, make("div", { class: "shell" }, shell, copy), help),
    show(models) {
      const model = choice(models);
      for (const element of [hint, shell.parentElement]) element.hidden = model === undefined;
      if (model !== undefined) say(code, command(root, model));
    },
  };
}
