// Run inference: build the request of a protocol, send it, read the answer.

import { inputKind } from "./catalogue.js";
import { base64Of } from "./images.js";
import { PROTOCOLS, bodyText } from "./protocols.js";
import { text } from "./text.js";

// An error response of the server, or a failed connection.
export class InferenceFailure extends Error {
  constructor(message, status, exchange) {
    super(message);
    this.status = status;
    this.exchange = exchange;
  }
}

// A cache of the last images in base64.
const encodings = new Map();
const MAX_ENCODINGS = 4;

function encode(image) {
  const encoding = encodings.get(image) ?? base64Of(image.blob);
  encodings.delete(image);
  encodings.set(image, encoding);
  if (encodings.size > MAX_ENCODINGS) encodings.delete(encodings.keys().next().value);
  return encoding;
}

// The request body: text, or the image file itself.
export async function bodyOf(written, data) {
  if (written.raw !== null) return data[written.raw].blob;
  const images = await Promise.all(data.map((datum) => (datum?.blob ? encode(datum) : "")));
  const write = (body) => bodyText(body, (index) => images[index]);
  return written.body.lines ? written.body.lines.map((line) => `${write(line)}\n`).join("") : write(written.body);
}

// Send a request in the protocol `id`. Return { request, response, milliseconds } as text.
export async function sendRequest(id, { root, signal, ...exchange }) {
  const protocol = PROTOCOLS[id];
  const written = protocol.write(exchange);
  const body = await bodyOf(written, exchange.data);
  const url = new URL((protocol.proxy ?? "") + written.path, root);
  const started = performance.now();
  let response;
  try {
    // Default to JSON, which other sites cannot send without a preflight.
    const headers = { "Content-Type": "application/json", ...written.headers };
    response = await fetch(url, { method: "POST", headers, body, signal });
    const answer = await response.text();
    const milliseconds = performance.now() - started;
    return {
      request: { method: "POST", url: url.href, headers: written.headers, body },
      response: { status: response.status, headers: Object.fromEntries(response.headers), text: answer },
      milliseconds,
    };
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new InferenceFailure(text.try.unreachable, 0, null);
  }
}

function parseJson(answer) {
  try {
    return JSON.parse(answer);
  } catch {
    return null;
  }
}

function errorText({ status, text: body }) {
  return parseJson(body)?.error ?? text.try.refused(status);
}

const READERS = {
  image: (answer) => answer.outputs.map((output) => output.data[0]),
  tensor: (answer) => [answer.outputs],
};

// The records of an answer in either Chariot protocol, one list for each input.
function readRecords(catalogue, kind, body) {
  if (kind === "tensor" || catalogue.chariot_protocol !== "chariot-v2") {
    return (READERS[kind] ?? READERS.image)(JSON.parse(body));
  }
  return body
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line).output);
}

// Run `model` on `data`: images, texts, or one object of tensors by name. Throw InferenceFailure with the server's
// error, or AbortError.
export async function infer(exchange) {
  const kind = inputKind(exchange.model.task_type);
  const reply = await sendRequest(kind === "tensor" ? "v2" : "chariot", exchange);
  const { response } = reply;
  if (response.status !== 200) throw new InferenceFailure(errorText(response), response.status, reply);
  let outputs;
  try {
    outputs = readRecords(exchange.catalogue, kind, response.text);
  } catch {
    throw new InferenceFailure(text.try.unreadableAnswer, response.status, reply);
  }
  return { outputs, milliseconds: reply.milliseconds, exchange: reply };
}

// The chunks of a generated text as they arrive (Triton's generate_stream).
export async function* streamAnswer({ root, model, image = null, text: prompt, parameters = {}, signal }) {
  const url = new URL(`v2/models/${encodeURIComponent(model.name)}/generate_stream`, root);
  const body = { text_input: prompt, parameters };
  if (image !== null) body.image = await encode(image);
  const request = {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  };
  const response = await fetch(url, request).catch((error) => {
    throw error.name === "AbortError" ? error : new InferenceFailure(text.try.unreachable, 0, null);
  });
  if (!response.ok) {
    const reply = { status: response.status, text: await response.text() };
    throw new InferenceFailure(errorText(reply), response.status, { response: reply });
  }
  let buffer = "";
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
    buffer += chunk.value;
    const events = buffer.split(/\r?\n\r?\n/);
    buffer = events.pop();
    for (const event of events) {
      const message = parseJson(event.replace(/^data: ?/, ""));
      if (message?.error) throw new InferenceFailure(message.error, response.status, null);
      if (message?.text_output) yield message.text_output;
    }
  }
}
