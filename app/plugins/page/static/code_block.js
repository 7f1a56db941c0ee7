// Code with syntax colours and a copy button.

import { button, make, setText } from "./dom.js";

const STRING = /"(?:[^"\\\n]|\\.)*"/;
const NUMBER = /(?<![\w.:/-])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?\b/;
// By language, kinds of tokens in the order in which they are tried.
const TOKENS = {
  json: { key: /"(?:[^"\\\n]|\\.)*"(?=\s*:)/, string: STRING, number: NUMBER, keyword: /\b(?:true|false|null|POST)\b/ },
  python: {
    comment: /#.*/,
    string: STRING,
    number: NUMBER,
    keyword: /\b(?:def|for|from|if|import|in|or|return|False|None|True)\b/,
  },
  shell: {
    string: /\$?'(?:[^'\\]|\\.)*'|"(?:[^"\\\n]|\\.)*"/,
    keyword: /\b(?:base64|curl|tr)\b/,
    key: /(?<=\s)--?[a-zA-Z][\w-]*/,
  },
};
const PATTERNS = Object.fromEntries(
  Object.entries(TOKENS).map(([language, kinds]) => {
    const groups = Object.entries(kinds).map(([kind, pattern]) => `(?<${kind}>${pattern.source})`);
    return [language, new RegExp(groups.join("|"), "g")];
  }),
);

// The text as nodes: plain text, and a span for each token.
function highlighted(value, language) {
  const nodes = [];
  let position = 0;
  for (const match of value.matchAll(PATTERNS[language])) {
    const [kind] = Object.entries(match.groups).find(([, token]) => token !== undefined);
    nodes.push(value.slice(position, match.index), make("span", { class: `token-${kind}` }, match[0]));
    position = match.index + match[0].length;
  }
  return [...nodes, value.slice(position)];
}

// Code in a language of TOKENS: { element, show(value, hint, loadFull), allowCopy(allowed) }. `loadFull()` returns the
// text to copy if it differs.
export function codeBlock(name, language = "json") {
  const code = make("code");
  const pre = make("pre", { tabindex: "0", role: "group", "aria-label": name }, code);
  const hint = make("p.hint", { hidden: "" });
  let labelTimer;
  const copyButton = button("Copy", async () => {
    await navigator.clipboard.writeText((await loadFull?.()) ?? code.textContent);
    setText(copyButton, "Copied");
    clearTimeout(labelTimer);
    labelTimer = setTimeout(() => setText(copyButton, "Copy"), 2000);
  });
  copyButton.setAttribute("aria-label", `Copy: ${name}`);
  let loadFull = null;
  const row = make("div.code-row", pre, copyButton);
  const element = make("div.block", { hidden: "" }, row, hint);
  const allowCopy = (allowed) => {
    // Browsers allow the clipboard only over HTTPS or on a loopback address.
    copyButton.hidden = !allowed || !window.isSecureContext;
  };
  return {
    element,
    show(value, note = "", load = null) {
      element.hidden = !value;
      loadFull = load;
      code.replaceChildren(...highlighted(value, language));
      hint.hidden = !note;
      setText(hint, note);
      allowCopy(true);
    },
    allowCopy,
  };
}
