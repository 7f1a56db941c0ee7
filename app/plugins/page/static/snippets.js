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

export function python(written, { root, catalogue, data }) {
  if (written.port === "grpc") return pythonGrpc(written, { root, catalogue, data });
  const url = addressOf(written, root, catalogue);
  const headers = literal(written.headers, data, 0);
  const imports = catalogue.requires_credentials ? ["import os"] : [];
  const authentication = catalogue.requires_credentials
    ? [`request.add_header("X-API-Key", os.environ["${KEY_VARIABLE}"])`]
    : [];
  if (written.raw !== null) {
    return [
      ...imports,
      "from urllib.request import Request, urlopen",
      "",
      `body = open(${pythonString(data[written.raw].name)}, "rb").read()`,
      `request = Request(${pythonString(url)}, body, ${headers})`,
      ...authentication,
      "print(urlopen(request).read().decode())",
    ].join("\n");
  }
  const lines = written.body.lines;
  return [
    ...(data.some((datum) => datum.blob) ? ["import base64"] : []),
    "import json",
    ...imports,
    "from urllib.request import Request, urlopen",
    "",
    ...imageReader(data),
    `body = ${literal(lines ?? written.body, data, 0)}`,
    lines ? `text = "\\n".join(json.dumps(line) for line in body)` : "text = json.dumps(body)",
    `request = Request(${pythonString(url)}, text.encode(), ${headers})`,
    ...authentication,
    "print(urlopen(request).read().decode())",
  ].join("\n");
}

function pythonGrpc(written, { root, catalogue, data }) {
  const address = pythonString(addressOf(written, root, catalogue));
  const secure = `grpc.secure_channel(${address}, grpc.ssl_channel_credentials(), unlimited)`;
  const authentication = catalogue.requires_credentials ? `, metadata=[("x-api-key", os.environ["${KEY_VARIABLE}"])]` : "";
  return [
    ...(data.some((datum) => datum.blob) ? ["import base64"] : []),
    ...(catalogue.requires_credentials ? ["import os"] : []),
    "import grpc",
    "from google.protobuf.json_format import ParseDict",
    "from tritonclient.grpc import InferResult, service_pb2, service_pb2_grpc",
    "",
    ...imageReader(data),
    `body = ${literal(written.body, data, 0)}`,
    'unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]',
    `channel = ${root.protocol === "https:" ? secure : `grpc.insecure_channel(${address}, unlimited)`}`,
    "stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)",
    `answer = stub.ModelInfer(ParseDict(body, service_pb2.ModelInferRequest())${authentication})`,
    "for output in answer.outputs:",
    "    values = [value for _, field in output.contents.ListFields() for value in field]",
    "    print(output.name, values or InferResult(answer).as_numpy(output.name))",
  ].join("\n");
}

function imageReader(data) {
  if (!data.some((datum) => datum.blob)) return [];
  return ["", "def image_base64(name):", '    return base64.b64encode(open(name, "rb").read()).decode()', "", ""];
}

// JSON strings are valid Python strings.
function pythonString(value) {
  return JSON.stringify(value).replace(UNSAFE_CHARACTERS, escapeCharacter);
}

const PYTHON_LITERALS = new Map([
  [null, "None"],
  [true, "True"],
  [false, "False"],
]);
const MAX_LINE = 88;

function literal(value, data, depth) {
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
