// The same request as a shell command and as Python. Both run in the folder with the images.

import { ImageReference, addressOf, bodyText } from "./request_parts.js";

// If the server requires a key, the snippet reads it from this environment variable.
const KEY_VARIABLE = "API_KEY";

// Control characters, line ends that could end a here-document, and direction controls.
const UNSAFE_CHARACTERS = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

function escapeCharacter(character) {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

// Quote any text as one shell word.
function quoteWord(word) {
  if (word.search(UNSAFE_CHARACTERS) < 0) return `'${word.replaceAll("'", "'\\''")}'`;
  return `$'${word.replace(/[\\']/g, "\\$&").replace(UNSAFE_CHARACTERS, escapeCharacter)}'`;
}

function filePath(name) {
  return name.startsWith("-") ? `./${name}` : name;
}

export function curl(written, { root, catalogue, data }) {
  const url = quoteWord(addressOf(written, root, catalogue));
  const headers = Object.entries(written.headers).map(([name, value]) => `-H ${quoteWord(`${name}: ${value}`)}`);
  if (catalogue.requires_credentials) headers.push(`-H "X-API-Key: $${KEY_VARIABLE}"`);
  const command = [`curl -s ${url}`, ...headers].join(" \\\n  ");
  if (written.raw !== null) return `${command} \\\n  --data-binary @- < ${quoteWord(filePath(data[written.raw].name))}`;
  const image = (index) => `$(base64 < ${quoteWord(filePath(data[index].name))} | tr -d '\\n')`;
  // Escape what a shell expands in a here-document.
  const escapeText = (part) => part.replace(UNSAFE_CHARACTERS, escapeCharacter).replace(/[\\$`]/g, "\\$&");
  const lines = (written.body.lines ?? [written.body]).map((line) => bodyText(line, image, escapeText));
  return `${command} \\\n  --data-binary @- <<JSON\n${lines.join("\n")}\nJSON`;
}

// The Python of a request in `protocol` as { code, needs }, where `needs` is what to install.
export function python(protocol, written, exchange) {
  return (protocol.python ?? withRequests)(written, exchange);
}

// The key as Python, and the import that it needs.
export const credentials = ({ requires_credentials: isNeeded }) =>
  isNeeded ? { value: `os.environ["${KEY_VARIABLE}"]`, imports: ["import os"] } : { value: null, imports: [] };

function withRequests(written, { root, catalogue, data }) {
  const key = credentials(catalogue);
  const { "Content-Type": type, ...others } = written.headers;
  const { lines } = written.body ?? {};
  const isJson = written.raw === null && !lines;
  const headers = Object.entries(isJson ? others : written.headers).map((pair) => pair.map(pythonString).join(": "));
  if (key.value) headers.push(`"X-API-Key": ${key.value}`);
  const body = isJson ? "json=body" : "data=body";
  const options = [pythonString(addressOf(written, root, catalogue)), body];
  if (headers.length) options.push(`headers={${headers.join(", ")}}`);
  const imports = ["import requests", ...key.imports, ...(lines ? ["import json"] : [])];
  const code =
    written.raw === null
      ? [...imageReader(data), `body = ${literal(lines ?? written.body, data)}`]
      : [`body = ${fileBytes(data[written.raw])}`];
  if (lines) code.push('body = "\\n".join(json.dumps(line) for line in body)');
  code.push(`response = requests.post(${options.join(", ")})`, "print(response.text)");
  return { code: program(imports, code, data.some(({ blob }) => blob) && written.raw === null), needs: "requests" };
}

// A program with its imports in order.
export function program(imports, code, isEncoding) {
  return [...[...imports, ...(isEncoding ? ["import base64"] : [])].sort(), "", ...code].join("\n");
}

export const fileBytes = ({ name }) => `open(${pythonString(name)}, "rb").read()`;

export function imageReader(data) {
  if (!data.some((datum) => datum.blob)) return [];
  return ["", "def image_base64(name):", '    return base64.b64encode(open(name, "rb").read()).decode()', "", ""];
}

// JSON strings are valid Python strings.
export function pythonString(value) {
  return JSON.stringify(value).replace(UNSAFE_CHARACTERS, escapeCharacter);
}

const PYTHON_LITERALS = new Map([
  [null, "None"],
  [true, "True"],
  [false, "False"],
]);
const MAX_LINE = 88;

export function literal(value, data, depth = 0) {
  if (value instanceof ImageReference) {
    const prefix = value.prefix && `${pythonString(value.prefix)} + `;
    return `${prefix}image_base64(${pythonString(data[value.index].name)})`;
  }
  if (PYTHON_LITERALS.has(value)) return PYTHON_LITERALS.get(value);
  if (typeof value !== "object") return pythonString(value);
  const isList = Array.isArray(value);
  const parts = isList
    ? value.map((item) => literal(item, data, depth + 1))
    : Object.entries(value).map(([name, item]) => `${pythonString(name)}: ${literal(item, data, depth + 1)}`);
  const [open, end] = isList ? "[]" : "{}";
  const line = `${open}${parts.join(", ")}${end}`;
  if (line.length + 4 * depth <= MAX_LINE && !line.includes("\n")) return line;
  const indent = "    ".repeat(depth + 1);
  return `${open}\n${parts.map((part) => `${indent}${part},\n`).join("")}${"    ".repeat(depth)}${end}`;
}
