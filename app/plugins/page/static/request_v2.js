// Requests of KServe V2, the Open Inference Protocol.

import { data, encodePath, json, optionalParameters, tensors } from "./request_parts.js";
import { withTriton } from "./triton_client.js";

export const title = "V2";
export const order = 20;
export const python = withTriton("http");

export function write(exchange) {
  const { model, parameters } = exchange;
  const path = `v2/models/${encodePath(model.name)}/infer`;
  if (model.takes === "tensor") return json(path, { inputs: tensors(exchange) });
  const values = data(exchange);
  const input = { name: model.inputs[0].name, shape: [values.length], datatype: "BYTES", data: values };
  return json(path, { inputs: [input], ...optionalParameters({ parameters }) });
}
