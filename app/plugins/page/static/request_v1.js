// Requests of KServe V1.

import { ImageReference, data, encodePath, json, optionalParameters, rows } from "./request_parts.js";

export const title = "V1";
export const order = 30;

export function write(exchange) {
  const { model, parameters } = exchange;
  const path = `v1/models/${encodePath(model.name)}:predict`;
  if (model.takes === "tensor") return json(path, { instances: rows(exchange) });
  const instances = data(exchange).map((datum) => (datum instanceof ImageReference ? { b64: datum } : datum));
  return json(path, { instances, ...optionalParameters({ parameters }) });
}
