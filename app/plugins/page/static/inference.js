// Run inference: build the request of a protocol, send it, read the answer.

import { failure, request } from "./connection.js";
import { base64Of } from "./images.js";
import { PROTOCOLS } from "./protocols.js";
import { bodyText } from "./request_parts.js";

// The page requests low scores too, and filters the answer.
const MIN_SCORE = 0.05;
const MAX_DETECTIONS = { contour: 100 };
const DEFAULT_MAX_DETECTIONS = 300;
const MAX_ATTEMPTS = 6;
const UNREADABLE = "The answer cannot be read. A proxy between this page and the server may have cut it";
// The page sends one image, so its place in the request says nothing to the user.
const PLACE = /^inputs\[0\](\.data\[0\])?: /;

// An error response of the server; `details` is what it answered.
class InferenceFailure extends Error {
  constructor({ status, text: body }, sentence = parseJson(body)?.error ?? failure(status)) {
    // OpenAI's errors are objects.
    const message = sentence.message ?? sentence;
    super(message.replace(PLACE, ""));
    this.status = status;
    this.details = message.search(PLACE) < 0 ? "" : message;
  }
}

// The request body: text, or the image file itself.
async function bodyOf(written, data) {
  if (written.raw !== null) return data[written.raw].blob;
  const images = await Promise.all(data.map((datum) => (datum?.blob ? base64Of(datum.blob) : "")));
  const write = (body) => bodyText(body, (index) => images[index]);
  return written.body.lines ? written.body.lines.map((line) => `${write(line)}\n`).join("") : write(written.body);
}

// Send a request in the protocol `id`. Return { response: { status, headers, text }, milliseconds }.
export async function sendRequest(id, { root, signal, ...exchange }) {
  const written = PROTOCOLS[id].write(exchange);
  const body = await bodyOf(written, exchange.data);
  const url = new URL(written.path, root);
  const started = performance.now();
  // Default to JSON, which other sites cannot send without a preflight.
  const headers = { "Content-Type": "application/json", ...written.headers };
  const response = await request(url, { method: "POST", headers, body, signal });
  const answer = await response.text();
  return {
    response: { status: response.status, headers: Object.fromEntries(response.headers), text: answer },
    milliseconds: performance.now() - started,
  };
}

function parseJson(answer) {
  try {
    return JSON.parse(answer);
  } catch {
    return null;
  }
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
  const kind = exchange.model.takes;
  const reply = await sendRequest(kind === "tensor" ? "v2" : "chariot", exchange);
  const { response } = reply;
  if (response.status !== 200) throw new InferenceFailure(response);
  let outputs;
  try {
    outputs = readRecords(exchange.catalogue, kind, response.text);
  } catch {
    throw new InferenceFailure(response, UNREADABLE);
  }
  return { outputs, milliseconds: reply.milliseconds };
}

export const maxDetectionsOf = ({ geometry }) => MAX_DETECTIONS[geometry] ?? DEFAULT_MAX_DETECTIONS;

// The answer of a model to one image: { records, milliseconds }. `exact` requests what is shown instead of low scores
// too, for servers that record it. A busy server answers 429: wait, then send it again.
export async function requestImage({ root, catalogue, model, image, parameters, exact, signal }) {
  const hasShapes = model.geometry !== null;
  const own = { ...parameters };
  if (!exact) {
    own.score_threshold = hasShapes ? Math.min(MIN_SCORE, model.parameters.score_threshold.default) : 0;
    if (hasShapes) own.top_k = maxDetectionsOf(model);
    else delete own.top_k;
  }
  for (let attempt = 1; ; attempt += 1) {
    try {
      const data = [image];
      const { outputs, milliseconds } = await infer({ root, catalogue, model, data, parameters: own, signal });
      return { records: outputs[0], milliseconds };
    } catch (error) {
      if (error.status !== 429 || attempt === MAX_ATTEMPTS) throw error;
      await new Promise((resolve) => setTimeout(resolve, 250 * 2 ** attempt));
    }
  }
}

// The chunks of a generated text as they arrive, by OpenAI's chat completions, and the objects that it locates.
export async function* streamAnswer({ root, model, image = null, text: prompt, parameters = {}, signal }) {
  if (!PROTOCOLS.openai) throw new Error("This server lacks the plugin openai, which streams text.");
  const data = image === null ? [prompt] : [image];
  const limit = { max_new_tokens: model.parameters.max_new_tokens?.default };
  const written = PROTOCOLS.openai.write({ model, data, parameters: { ...limit, ...parameters, prompts: [prompt] } });
  written.body.stream = true;
  const options = { method: "POST", headers: written.headers, body: await bodyOf(written, data), signal };
  const response = await request(new URL(written.path, root), options);
  if (!response.ok) throw new InferenceFailure({ status: response.status, text: await response.text() });
  let buffer = "";
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
    buffer += chunk.value;
    const events = buffer.split(/\r?\n\r?\n/);
    buffer = events.pop();
    for (const event of events) {
      const message = parseJson(event.replace(/^data: ?/, ""));
      if (message?.error) throw new InferenceFailure({ status: response.status, text: JSON.stringify(message) });
      const { content, grounding } = message?.choices?.[0]?.delta ?? {};
      if (content) yield content;
      if (grounding) yield grounding;
    }
  }
}
