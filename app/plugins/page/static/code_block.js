// Code with syntax colours and a copy button.

import { button, make, setText } from "./dom.js";

// The tokens of JSON, Python and shell commands.
const TOKENS = [
  /(?<key>"(?:[^"\\\n]|\\.)*"(?=\s*:)|(?<=\s)--?[a-zA-Z][\w-]*)/,
  /(?<string>\$?'(?:[^'\\]|\\.)*'|"(?:[^"\\\n]|\\.)*")/,
  /(?<comment>#.*)/,
  /(?<number>(?<![\w.:/-])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?\b)/,
  /(?<keyword>\b(?:base64|curl|def|false|False|for|from|import|in|None|null|return|tr|true|True)\b)/,
];
const PATTERN = new RegExp(TOKENS.map(({ source }) => source).join("|"), "g");

// The text as nodes: plain text, and a span for each token.
function highlighted(value) {
  const nodes = [];
  let position = 0;
  for (const match of value.matchAll(PATTERN)) {
    const [kind] = Object.entries(match.groups).find(([, token]) => token !== undefined);
    nodes.push(value.slice(position, match.index), make("span", { class: `token-${kind}` }, match[0]));
    position = match.index + match[0].length;
  }
  return [...nodes, value.slice(position)];
}

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
      code.replaceChildren(...highlighted(value));
      hint.hidden = !note;
      setText(hint, note);
    },
  };
}
