// Requests of GRPS.

import { data, isNotEmpty, json, names, tensors } from "./request_parts.js";

export const title = "GRPS";
export const order = 50;

const GRPS_TYPES = { FP16: "FLOAT16", FP32: "FLOAT32", FP64: "FLOAT64", BYTES: "STRING", BOOL: "UINT8" };

export function write(exchange) {
  const { model, parameters } = exchange;
  const query = new URLSearchParams({ model: model.name });
  const path = () => `grps/v1/infer/predict?${query}`;
  const kind = model.takes;
  if (kind === "tensor") {
    const gtensors = tensors(exchange).map(({ name, shape, datatype, data: value }) => {
      const type = GRPS_TYPES[datatype] ?? datatype;
      return { name, dtype: `DT_${type}`, shape, [`flat_${type.toLowerCase()}`]: [value].flat(Infinity) };
    });
    return json(path(), { gtensors: { tensors: gtensors } });
  }
  if (kind === "text" && exchange.data.length === 1 && !isNotEmpty(parameters)) {
    return json(path(), { str_data: exchange.data[0] });
  }
  if (kind !== "text" && exchange.data.length === 1 && Object.values(parameters).every(fitsQuery)) {
    for (const [name, value] of Object.entries(parameters)) {
      for (const item of [value].flat()) query.append(name, item);
    }
    return { path: path(), headers: { "Content-Type": "application/octet-stream" }, raw: 0, note: "" };
  }
  const inputNames = names(exchange);
  const values = Object.fromEntries(data(exchange).map((datum, index) => [inputNames[index], datum]));
  const options = isNotEmpty(parameters) ? { parameters: JSON.stringify(parameters) } : {};
  return json(path(), { gmap: kind === "text" ? { s_s: { ...values, ...options } } : { s_b: values, s_s: options } });
}

function fitsQuery(value) {
  return typeof value === "number" || (Array.isArray(value) && value.length > 0);
}
