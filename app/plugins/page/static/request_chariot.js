// Requests of Chariot's protocols.

import { data, encodePath, json, names, optionalParameters, tensors } from "./request_parts.js";

export const title = "Chariot";
export const order = 10;

export function write(exchange) {
  const { model, parameters, catalogue } = exchange;
  const version = model.latest ? "" : `/versions/${encodePath(model.version)}`;
  const path = `v2/models/m-${encodePath(model.chariot_id)}${version}/infer`;
  if (model.takes === "tensor") return json(path, { inputs: tensors(exchange) });
  if (catalogue.chariot_protocol === "chariot-v2") {
    const lines = data(exchange).map((input) => ({ input, parameters }));
    const isBatch = lines.length > 1;
    if (!isBatch) return json(path, lines[0]);
    return json(path, { lines }, { headers: { "Content-Type": "application/jsonl" } });
  }
  const inputNames = names(exchange);
  const inputs = data(exchange).map((datum, index) => ({
    name: inputNames[index],
    shape: [1],
    datatype: "BYTES",
    data: [datum],
  }));
  return json(path, { inputs, ...optionalParameters({ parameters }) });
}
