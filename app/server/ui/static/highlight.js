// Syntax colours of the code that the page shows.

import { make } from "./dom.js";

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
export function highlighted(value, language) {
  const nodes = [];
  let position = 0;
  for (const match of value.matchAll(PATTERNS[language])) {
    const [kind] = Object.entries(match.groups).find(([, token]) => token !== undefined);
    nodes.push(value.slice(position, match.index), make("span", { class: `token-${kind}` }, match[0]));
    position = match.index + match[0].length;
  }
  return [...nodes, value.slice(position)];
}
