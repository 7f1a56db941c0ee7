// The same request as a shell command and as Python. Both run in the folder with the images.

import { Picture, addressOf, bodyText } from "./protocols.js";

// If the server requires a key, the snippet reads it from this environment variable.
const KEY = "API_KEY";

// Control characters, line ends that could end a here-document, and direction controls.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

function escaped(character) {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

// Quote any text as one shell word.
function quoted(word) {
  if (word.search(UNSEEN) < 0) return `'${word.replaceAll("'", "'\\''")}'`;
  return `$'${word.replace(/[\\']/g, "\\$&").replace(UNSEEN, escaped)}'`;
}

function fileOf(name) {
  return name.startsWith("-") ? `./${name}` : name;
}

export function curl(written, { root, catalogue, data }) {
  const url = quoted(addressOf(written, root, catalogue));
  const headers = Object.entries(written.headers).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`);
  if (catalogue.asks) headers.push(`-H "X-API-Key: $${KEY}"`);
  const command = [`curl -s ${url}`, ...headers].join(" \\\n  ");
  if (written.raw !== null) return `${command} \\\n  --data-binary @- < ${quoted(fileOf(data[written.raw].name))}`;
  const picture = (index) => `$(base64 < ${quoted(fileOf(data[index].name))} | tr -d '\\n')`;
  // Escape what a shell expands in a here-document.
  const plain = (part) => part.replace(UNSEEN, escaped).replace(/[\\$`]/g, "\\$&");
  const lines = (written.body.lines ?? [written.body]).map((line) => bodyText(line, picture, plain));
  return `${command} \\\n  --data-binary @- <<JSON\n${lines.join("\n")}\nJSON`;
}

export function python(written, { root, catalogue, data }) {
  if (written.port === "grpc") return pythonGrpc(written, { root, catalogue, data });
  const url = addressOf(written, root, catalogue);
  const headers = literal(written.headers, data, 0);
  const system = catalogue.asks ? ["import os"] : [];
  const shown = catalogue.asks ? [`request.add_header("X-API-Key", os.environ["${KEY}"])`] : [];
  if (written.raw !== null) {
    return [
      ...system,
      "from urllib.request import Request, urlopen",
      "",
      `body = open(${string(data[written.raw].name)}, "rb").read()`,
      `request = Request(${string(url)}, body, ${headers})`,
      ...shown,
      "print(urlopen(request).read().decode())",
    ].join("\n");
  }
  const many = written.body.lines;
  return [
    ...(data.some((datum) => datum.blob) ? ["import base64"] : []),
    "import json",
    ...system,
    "from urllib.request import Request, urlopen",
    "",
    ...reader(data),
    `body = ${literal(many ?? written.body, data, 0)}`,
    many ? `text = "\\n".join(json.dumps(line) for line in body)` : "text = json.dumps(body)",
    `request = Request(${string(url)}, text.encode(), ${headers})`,
    ...shown,
    "print(urlopen(request).read().decode())",
  ].join("\n");
}

function pythonGrpc(written, { root, catalogue, data }) {
  const address = string(addressOf(written, root, catalogue));
  const secure = `grpc.secure_channel(${address}, grpc.ssl_channel_credentials(), unlimited)`;
  const shown = catalogue.asks ? `, metadata=[("x-api-key", os.environ["${KEY}"])]` : "";
  return [
    ...(data.some((datum) => datum.blob) ? ["import base64"] : []),
    ...(catalogue.asks ? ["import os"] : []),
    "import grpc",
    "from google.protobuf.json_format import ParseDict",
    "from tritonclient.grpc import InferResult, service_pb2, service_pb2_grpc",
    "",
    ...reader(data),
    `body = ${literal(written.body, data, 0)}`,
    'unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]',
    `channel = ${root.protocol === "https:" ? secure : `grpc.insecure_channel(${address}, unlimited)`}`,
    "stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)",
    `answer = stub.ModelInfer(ParseDict(body, service_pb2.ModelInferRequest())${shown})`,
    "for output in answer.outputs:",
    "    values = [value for _, field in output.contents.ListFields() for value in field]",
    "    print(output.name, values or InferResult(answer).as_numpy(output.name))",
  ].join("\n");
}

function reader(data) {
  if (!data.some((datum) => datum.blob)) return [];
  return ["", "def picture(name):", '    return base64.b64encode(open(name, "rb").read()).decode()', "", ""];
}

// JSON strings are valid Python strings.
function string(value) {
  return JSON.stringify(value).replace(UNSEEN, escaped);
}

const WORDS = new Map([
  [null, "None"],
  [true, "True"],
  [false, "False"],
]);
const WIDE = 88;

function literal(value, data, depth) {
  if (value instanceof Picture) return `picture(${string(data[value.index].name)})`;
  if (WORDS.has(value)) return WORDS.get(value);
  if (typeof value !== "object") return string(value);
  const list = Array.isArray(value);
  const parts = list
    ? value.map((item) => literal(item, data, depth + 1))
    : Object.entries(value).map(([name, item]) => `${string(name)}: ${literal(item, data, depth + 1)}`);
  const [begin, end] = list ? "[]" : "{}";
  const line = `${begin}${parts.join(", ")}${end}`;
  if (line.length + 4 * depth <= WIDE && !line.includes("\n")) return line;
  const pad = "    ".repeat(depth + 1);
  return `${begin}\n${parts.map((part) => `${pad}${part},\n`).join("")}${"    ".repeat(depth)}${end}`;
}
