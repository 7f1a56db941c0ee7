// Requests of TensorFlow Serving's REST API.

import { data, encodePath, isNotEmpty, json, rows } from "./request_parts.js";

export const title = "TensorFlow Serving";
export const order = 40;
export const port = "tensorflow-serving";

const NO_PARAMETERS = "TensorFlow Serving has no request parameters: the thresholds of the model's settings apply.";

export function write(exchange) {
  const { model, parameters } = exchange;
  const path = `v1/models/${encodePath(model.name)}:predict`;
  const kind = model.takes;
  const options = { port, note: isNotEmpty(parameters) ? NO_PARAMETERS : "" };
  if (kind === "tensor") return json(path, { instances: rows(exchange) }, options);
  if (kind === "text") return json(path, { instances: data(exchange) }, options);
  const prompts = parameters.prompts;
  const instances = data(exchange).map((datum) => (prompts ? { image: { b64: datum }, prompts } : { b64: datum }));
  return json(path, { instances }, options);
}
