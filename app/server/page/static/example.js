// A command that sends a first request, for the page of a server that has had none.

import { make, say } from "./dom.js";
import { text } from "./text.js";

const words = text.metrics;
const PICTURE = `$(base64 -w0 ${words.picture})`;

function inputs(task) {
  if (task === "IMAGE_TEXT_TO_TEXT") return [PICTURE, `, "parameters": {"prompts": ["${words.question}"]}`];
  if (task.startsWith("TEXT_") || task.startsWith("TOKEN_")) return [words.sentence, ""];
  return [PICTURE, ""];
}

// The first model that takes pictures, or else text. Tensors have shapes that only their model knows.
function choice(models) {
  const ready = models.filter((each) => each.state === "READY" && each.task !== "" && each.task !== "TENSOR");
  const plain = ready.filter((each) => !/^(TEXT|TOKEN)_|_TO_TEXT$/.test(each.task));
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
  // Browsers give pages from other machines no clipboard unless they came over HTTPS.
  copy.hidden = !window.isSecureContext;
  return {
    element: make("div", {}, hint, make("div", { class: "shell" }, shell, copy), help),
    show(models) {
      const model = choice(models);
      for (const each of [hint, shell.parentElement]) each.hidden = model === undefined;
      if (model !== undefined) say(code, command(root, model));
    },
  };
}
