// A command that sends a first request, for a server without traffic.

import { inputKind } from "./catalogue.js";
import { make, setText } from "./dom.js";
import { text } from "./text.js";

const strings = text.metrics;
const IMAGE_DATA = `$(base64 -w0 ${strings.imageFile})`;

function inputData(task) {
  if (inputKind(task) === "question") return [IMAGE_DATA, `, "parameters": {"prompts": ["${strings.sampleQuestion}"]}`];
  if (inputKind(task) === "text") return [strings.sampleText, ""];
  return [IMAGE_DATA, ""];
}

// The first image model, or else a text model. Tensor models are skipped: their shapes differ.
function chooseModel(models) {
  const ready = models.filter((model) => model.state === "READY" && inputKind(model.task) !== "tensor");
  return ready.find((model) => inputKind(model.task) === "image") ?? ready[0];
}

function command(root, { name, task }) {
  const [data, parameters] = inputData(task);
  const url = new URL(`v2/models/${encodeURIComponent(name)}/infer`, root);
  return [
    `curl -s ${url} -H 'Content-Type: application/json' -d @- <<JSON`,
    `{"inputs": [{"name": "input", "shape": [1], "datatype": "BYTES", "data": ["${data}"]${parameters}}]}`,
    "JSON",
  ].join("\n");
}

export function curlExample(root) {
  const code = make("code");
  const hint = make("p", {}, strings.emptyHint);
  const pre = make("pre", { tabindex: "0", role: "group", "aria-label": strings.emptyHint }, code);
  const copy = make("button", { type: "button" }, strings.copy);
  const schema = new URL("schema", root);
  const help = make("p", { class: "hint" }, `${strings.emptyHelp} `, make("a", { href: schema }, schema.pathname));
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(code.textContent);
    setText(copy, strings.copied);
    setTimeout(() => setText(copy, strings.copy), 2000);
  });
  // Browsers allow the clipboard only over HTTPS or on a loopback address.
  copy.hidden = !window.isSecureContext;
  return {
    element: make("div", {}, hint, make("div", { class: "code-row" }, pre, copy), help),
    show(models) {
      const model = chooseModel(models);
      for (const element of [hint, pre.parentElement]) element.hidden = model === undefined;
      if (model !== undefined) setText(code, command(root, model));
    },
  };
}
