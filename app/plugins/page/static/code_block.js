// Code with a copy button.

import { button, make, setText } from "./dom.js";

// Code: { element, show(value, hint, copied) }. `copied` is the text to copy if it differs.
export function codeBlock(name) {
  const code = make("code");
  const pre = make("pre", { tabindex: "0", role: "group", "aria-label": name }, code);
  const hint = make("p.hint", { hidden: "" });
  let labelTimer;
  const copyButton = button("Copy", async () => {
    await navigator.clipboard.writeText(copied ?? code.textContent);
    setText(copyButton, "Copied");
    clearTimeout(labelTimer);
    labelTimer = setTimeout(() => setText(copyButton, "Copy"), 2000);
  });
  copyButton.setAttribute("aria-label", `Copy: ${name}`);
  let copied = null;
  // Browsers allow the clipboard only over HTTPS or on a loopback address.
  copyButton.hidden = !window.isSecureContext;
  const row = make("div.code-row", pre, copyButton);
  const element = make("div.block", { hidden: "" }, row, hint);
  return {
    element,
    show(value, note = "", other = null) {
      element.hidden = !value;
      copied = other;
      setText(code, value);
      hint.hidden = !note;
      setText(hint, note);
    },
  };
}
