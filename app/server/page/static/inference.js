// Run inference: build the request of a protocol, send it, read the answer.

import { sortOf } from "./catalogue.js";
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
const MOST_ENCODED = 4;

function encodingOf(picture) {
  const encoding = encodings.get(picture) ?? base64Of(picture.blob);
  encodings.delete(picture);
  encodings.set(picture, encoding);
  if (encodings.size > MOST_ENCODED) encodings.delete(encodings.keys().next().value);
  return encoding;
}

// The request body: text, or the image file itself.
export async function bodyOf(written, data) {
  if (written.raw !== null) return data[written.raw].blob;
  const pictures = await Promise.all(data.map((datum) => (datum?.blob ? encodingOf(datum) : "")));
  const write = (body) => bodyText(body, (index) => pictures[index]);
  return written.body.lines ? written.body.lines.map((line) => `${write(line)}\n`).join("") : write(written.body);
}

// Send a request in the protocol `id`. Return { request, response, milliseconds } as text.
export async function exchangeBy(id, { root, signal, ...exchange }) {
  const protocol = PROTOCOLS[id];
  const written = protocol.write(exchange);
  const body = await bodyOf(written, exchange.data);
  const url = new URL((protocol.by ?? "") + written.path, root);
  const began = performance.now();
  let response;
  try {
    // Default to JSON, which other sites cannot send without a preflight.
    const headers = { "Content-Type": "application/json", ...written.headers };
    response = await fetch(url, { method: "POST", headers, body, signal });
    const answer = await response.text();
    const milliseconds = performance.now() - began;
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

function reading(answer) {
  try {
    return JSON.parse(answer);
  } catch {
    return null;
  }
}

function refusal({ status, text: said }) {
  return reading(said)?.error ?? text.try.refused(status);
}

const READ = {
  picture: (answer) => answer.outputs.map((output) => output.data[0]),
  tensor: (answer) => [answer.outputs],
};

// The records of an answer in either Chariot protocol, one list for each input.
function records(catalogue, sort, said) {
  if (sort === "tensor" || catalogue.chariot_protocol !== "chariot-v2") {
    return (READ[sort] ?? READ.picture)(JSON.parse(said));
  }
  return said
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line).output);
}

// Run `model` on `data`: images, texts, or one object of tensors by name. Throw InferenceFailure with the server's
// error, or AbortError.
export async function infer(exchange) {
  const sort = sortOf(exchange.model.task_type);
  const found = await exchangeBy(sort === "tensor" ? "v2" : "chariot", exchange);
  if (found.response.status !== 200) throw new InferenceFailure(refusal(found.response), found.response.status, found);
  let outputs;
  try {
    outputs = records(exchange.catalogue, sort, found.response.text);
  } catch {
    throw new InferenceFailure(text.try.unintelligible, found.response.status, found);
  }
  return { outputs, milliseconds: found.milliseconds, exchange: found };
}

// The chunks of a generated text as they arrive (Triton's generate_stream).
export async function* streamAnswer({ root, model, picture = null, text: asked, parameters = {}, signal }) {
  const url = new URL(`v2/models/${encodeURIComponent(model.name)}/generate_stream`, root);
  const body = { text_input: asked, parameters };
  if (picture !== null) body.image = await encodingOf(picture);
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
    const found = { status: response.status, text: await response.text() };
    throw new InferenceFailure(refusal(found), response.status, { response: found });
  }
  let held = "";
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
    held += chunk.value;
    const events = held.split(/\r?\n\r?\n/);
    held = events.pop();
    for (const event of events) {
      const said = reading(event.replace(/^data: ?/, ""));
      if (said?.error) throw new InferenceFailure(said.error, response.status, null);
      if (said?.text_output) yield said.text_output;
    }
  }
}
