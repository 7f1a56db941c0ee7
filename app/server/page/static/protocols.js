// One inference as each protocol writes it: { path, port, headers, body, raw, note }.
//
// A body contains `new ImageReference(index)`, so that it can become a request, a shell command or Python.

import { sortOf } from "./catalogue.js";
import { text } from "./text.js";

const words = text.request;
const JSON_TYPE = "application/json";
// A marker that no text contains.
const MARK = `picture ${Math.random()} `;

export class Picture {
  constructor(index) {
    this.index = index;
  }

  toJSON() {
    return `${MARK}${this.index};`;
  }
}

// The JSON of a body with `encode(index)` for each image; `escape` is applied to the rest.
export function bodyText(body, written, escaped = (part) => part) {
  return JSON.stringify(body)
    .split(MARK)
    .map((part, place) => {
      if (place === 0) return escaped(part);
      const end = part.indexOf(";");
      return written(Number(part.slice(0, end))) + escaped(part.slice(end + 1));
    })
    .join("");
}

const encoded = encodeURIComponent;
// The parameters, if there are any.
const given = ({ parameters }) => (any(parameters) ? { parameters } : {});
const any = (parameters) => Object.keys(parameters).length > 0;
const json = (path, body, more) => ({
  path,
  headers: { "Content-Type": JSON_TYPE },
  body,
  raw: null,
  note: "",
  ...more,
});

// The inputs: references to images, or texts.
function data({ model, data: all }) {
  return sortOf(model.task_type) === "text" ? all : all.map((_, index) => new Picture(index));
}

function names({ model, data: all }) {
  return all.map((_, index) => `${sortOf(model.task_type) === "text" ? "text" : "image"}-${index}`);
}

// The shape of nested lists.
export function shapeOf(value) {
  const shape = [];
  for (let level = value; Array.isArray(level); level = level[0]) shape.push(level.length);
  return shape;
}

function tensors({ model, data: [values] }) {
  return Object.entries(values).map(([name, value]) => {
    const declared = model.inputs.find((input) => input.name === name);
    return { name, shape: shapeOf(value), datatype: declared?.datatype ?? "FP32", data: value };
  });
}

function chariot(exchange) {
  const { model, parameters, catalogue } = exchange;
  const path = `v2/models/m-${encoded(model.chariot_id)}/infer`;
  if (sortOf(model.task_type) === "tensor") return json(path, { inputs: tensors(exchange) });
  if (catalogue.chariot_protocol === "chariot-v2") {
    const lines = data(exchange).map((input) => ({ input, parameters }));
    const many = lines.length > 1;
    return json(path, many ? { lines } : lines[0], many ? { headers: { "Content-Type": "application/jsonl" } } : {});
  }
  const named = names(exchange);
  const inputs = data(exchange).map((datum, index) => ({
    name: named[index],
    shape: [1],
    datatype: "BYTES",
    data: [datum],
  }));
  return json(path, { inputs, ...given({ parameters }) });
}

function kserveV2(exchange) {
  const { model, parameters } = exchange;
  const path = `v2/models/${encoded(model.name)}/infer`;
  if (sortOf(model.task_type) === "tensor") return json(path, { inputs: tensors(exchange) });
  const all = data(exchange);
  const input = { name: model.inputs[0].name, shape: [all.length], datatype: "BYTES", data: all };
  return json(path, { inputs: [input], ...given({ parameters }) });
}

function kserveV1(exchange) {
  const { model, parameters } = exchange;
  const path = `v1/models/${encoded(model.name)}:predict`;
  if (sortOf(model.task_type) === "tensor") return json(path, { instances: rows(exchange) });
  const instances = data(exchange).map((datum) => (datum instanceof Picture ? { b64: datum } : datum));
  return json(path, { instances, ...given({ parameters }) });
}

// Split tensors along their first dimension, as V1 and TensorFlow Serving require.
function rows({ model, data: [values] }) {
  const found = Object.entries(values);
  const count = Math.min(...found.map(([, value]) => value.length));
  return Array.from({ length: count }, (_, row) => {
    if (model.inputs.length === 1) return found[0][1][row];
    return Object.fromEntries(found.map(([name, value]) => [name, value[row]]));
  });
}

function tensorflowServing(exchange) {
  const { model, parameters } = exchange;
  const path = `v1/models/${encoded(model.name)}:predict`;
  const sort = sortOf(model.task_type);
  const more = { port: "tensorflow_serving", note: any(parameters) ? words.noParameters : "" };
  if (sort === "tensor") return json(path, { instances: rows(exchange) }, more);
  if (sort === "text") return json(path, { instances: data(exchange) }, more);
  const prompts = parameters.prompts;
  const instances = data(exchange).map((datum) => (prompts ? { image: { b64: datum }, prompts } : { b64: datum }));
  return json(path, { instances }, more);
}

const GRPS_TYPES = { FP16: "FLOAT16", FP32: "FLOAT32", FP64: "FLOAT64", BYTES: "STRING", BOOL: "UINT8" };

function grps(exchange) {
  const { model, parameters } = exchange;
  const query = new URLSearchParams({ model: model.name });
  const path = () => `grps/v1/infer/predict?${query}`;
  const sort = sortOf(model.task_type);
  if (sort === "tensor") {
    const found = tensors(exchange).map(({ name, shape, datatype, data: value }) => {
      const type = GRPS_TYPES[datatype] ?? datatype;
      return { name, dtype: `DT_${type}`, shape, [`flat_${type.toLowerCase()}`]: [value].flat(Infinity) };
    });
    return json(path(), { gtensors: { tensors: found } });
  }
  if (sort === "text" && exchange.data.length === 1 && !any(parameters)) {
    return json(path(), { str_data: exchange.data[0] });
  }
  if (sort !== "text" && exchange.data.length === 1 && Object.values(parameters).every(fitsQuery)) {
    for (const [name, value] of Object.entries(parameters)) {
      for (const item of [value].flat()) query.append(name, item);
    }
    return { path: path(), headers: { "Content-Type": "application/octet-stream" }, raw: 0, note: "" };
  }
  const named = names(exchange);
  const all = Object.fromEntries(data(exchange).map((datum, index) => [named[index], datum]));
  const more = any(parameters) ? { parameters: JSON.stringify(parameters) } : {};
  return json(path(), { gmap: sort === "text" ? { s_s: { ...all, ...more } } : { s_b: all, s_s: more } });
}

function fitsQuery(value) {
  return typeof value === "number" || (Array.isArray(value) && value.length > 0);
}

const CONTENTS = { FP32: "fp32", FP64: "fp64", BOOL: "bool", INT64: "int64", UINT64: "uint64", BYTES: "bytes" };

// A ModelInferRequest as protobuf JSON, with bytes in base64.
function grpc(exchange) {
  const { model, parameters } = exchange;
  const sort = sortOf(model.task_type);
  let inputs;
  if (sort === "tensor") {
    inputs = tensors(exchange).map(({ name, shape, datatype, data: value }) => {
      const field = CONTENTS[datatype] ?? (datatype.startsWith("U") ? "uint" : "int");
      const flat = [value].flat(Infinity).map((element) => (datatype === "BYTES" ? base64OfText(element) : element));
      return { name, datatype, shape, contents: { [`${field}_contents`]: flat } };
    });
  } else {
    const all = data(exchange).map((datum) => (datum instanceof Picture ? datum : base64OfText(datum)));
    inputs = [
      { name: model.inputs[0].name, datatype: "BYTES", shape: [all.length], contents: { bytes_contents: all } },
    ];
  }
  const kinds = Object.fromEntries(Object.entries(parameters).map(([name, value]) => [name, oneOf(value)]));
  const body = { model_name: model.name, inputs, ...given({ parameters: kinds }) };
  return { path: "inference.GRPCInferenceService/ModelInfer", port: "grpc", headers: {}, body, raw: null, note: "" };
}

function oneOf(value) {
  if (typeof value === "boolean") return { bool_param: value };
  if (Number.isInteger(value)) return { int64_param: value };
  if (typeof value === "number") return { double_param: value };
  return { string_param: typeof value === "string" ? value : JSON.stringify(value) };
}

export function base64OfText(value) {
  return btoa(String.fromCharCode(...new TextEncoder().encode(value)));
}

// By id: `write(exchange)` builds the request; `proxy` is the path on this server that reaches a protocol on another
// port.
export const PROTOCOLS = {
  chariot: { write: chariot },
  v2: { write: kserveV2 },
  v1: { write: kserveV1 },
  tfs: { write: tensorflowServing, by: "page/tensorflow-serving/" },
  grps: { write: grps },
  grpc: { write: grpc, by: "page/grpc/" },
};

// The address of a request for clients other than this page.
export function addressOf(written, root, catalogue) {
  if (written.port === undefined) return new URL(written.path, root).href;
  const host = `${root.hostname}:${catalogue.ports[written.port]}`;
  return written.port === "grpc" ? host : `${root.protocol}//${host}/${written.path}`;
}
