// One inference as each protocol writes it: { path, port, headers, body, raw, note, refusal }.
//
// A body contains `new ImageReference(index)`, so that it can become a request, a shell command or Python.

const JSON_TYPE = "application/json";
const NO_PARAMETERS = "TensorFlow Serving has no request parameters: the thresholds of the model's settings apply.";
const ONLY_TEXTS = "OpenAI's API serves models that answer with text. Choose such a model, or another protocol.";
// A marker that no text contains.
const MARKER = `image ${Math.random()} `;

// The base64 of an image after `prefix`.
export class ImageReference {
  constructor(index, prefix = "") {
    this.index = index;
    this.prefix = prefix;
  }

  toJSON() {
    return `${this.prefix}${MARKER}${this.index};`;
  }
}

// The JSON of a body with `encode(index)` for each image; `escape` is applied to the rest.
export function bodyText(body, encode, escape = (part) => part) {
  return JSON.stringify(body)
    .split(MARKER)
    .map((part, index) => {
      if (index === 0) return escape(part);
      const end = part.indexOf(";");
      return encode(Number(part.slice(0, end))) + escape(part.slice(end + 1));
    })
    .join("");
}

const encodePath = encodeURIComponent;
// The parameters, if there are any.
const optionalParameters = ({ parameters }) => (isNotEmpty(parameters) ? { parameters } : {});
const isNotEmpty = (parameters) => Object.keys(parameters).length > 0;
const json = (path, body, options) => ({
  path,
  headers: { "Content-Type": JSON_TYPE },
  body,
  raw: null,
  note: "",
  ...options,
});

// The inputs: references to images, or texts.
function data({ model, data: values }) {
  return model.takes === "text" ? values : values.map((_, index) => new ImageReference(index));
}

function names({ model, data: values }) {
  return values.map((_, index) => `${model.takes === "text" ? "text" : "image"}-${index}`);
}

// The shape of nested lists.
function shapeOf(value) {
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
  const path = `v2/models/m-${encodePath(model.chariot_id)}/infer`;
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

function kserveV2(exchange) {
  const { model, parameters } = exchange;
  const path = `v2/models/${encodePath(model.name)}/infer`;
  if (model.takes === "tensor") return json(path, { inputs: tensors(exchange) });
  const values = data(exchange);
  const input = { name: model.inputs[0].name, shape: [values.length], datatype: "BYTES", data: values };
  return json(path, { inputs: [input], ...optionalParameters({ parameters }) });
}

function kserveV1(exchange) {
  const { model, parameters } = exchange;
  const path = `v1/models/${encodePath(model.name)}:predict`;
  if (model.takes === "tensor") return json(path, { instances: rows(exchange) });
  const instances = data(exchange).map((datum) => (datum instanceof ImageReference ? { b64: datum } : datum));
  return json(path, { instances, ...optionalParameters({ parameters }) });
}

// Split tensors along their first dimension, as V1 and TensorFlow Serving require.
function rows({ model, data: [values] }) {
  const columns = Object.entries(values);
  const count = Math.min(...columns.map(([, value]) => value.length));
  return Array.from({ length: count }, (_, row) => {
    if (model.inputs.length === 1) return columns[0][1][row];
    return Object.fromEntries(columns.map(([name, value]) => [name, value[row]]));
  });
}

function tensorflowServing(exchange) {
  const { model, parameters } = exchange;
  const path = `v1/models/${encodePath(model.name)}:predict`;
  const kind = model.takes;
  const options = { port: "tensorflow-serving", note: isNotEmpty(parameters) ? NO_PARAMETERS : "" };
  if (kind === "tensor") return json(path, { instances: rows(exchange) }, options);
  if (kind === "text") return json(path, { instances: data(exchange) }, options);
  const prompts = parameters.prompts;
  const instances = data(exchange).map((datum) => (prompts ? { image: { b64: datum }, prompts } : { b64: datum }));
  return json(path, { instances }, options);
}

const GRPS_TYPES = { FP16: "FLOAT16", FP32: "FLOAT32", FP64: "FLOAT64", BYTES: "STRING", BOOL: "UINT8" };

function grps(exchange) {
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

// OpenAI's API has no vision or tensor models.
function openai({ model, data: values, parameters: { prompts, max_new_tokens, ...parameters } }) {
  const path = "openai/v1/chat/completions";
  if (model.returns !== "texts") return json(path, {}, { refusal: ONLY_TEXTS });
  const isQuestion = model.takes === "question";
  const content = isQuestion
    ? [
        ...values.map((image, index) => {
          const url = new ImageReference(index, `data:${image.blob.type || "image/jpeg"};base64,`);
          return { type: "image_url", image_url: { url } };
        }),
        { type: "text", text: prompts?.[0] ?? "" },
      ]
    : values[0];
  const limit = max_new_tokens === undefined ? {} : { max_completion_tokens: max_new_tokens };
  return json(path, { model: model.name, messages: [{ role: "user", content }], ...limit, ...parameters });
}

const CONTENT_FIELDS = { FP32: "fp32", FP64: "fp64", BOOL: "bool", INT64: "int64", UINT64: "uint64", BYTES: "bytes" };

// A ModelInferRequest as protobuf JSON, with bytes in base64.
function grpc(exchange) {
  const { model, parameters } = exchange;
  let inputs;
  if (model.takes === "tensor") {
    inputs = tensors(exchange).map(({ name, shape, datatype, data: value }) => {
      const field = CONTENT_FIELDS[datatype] ?? (datatype.startsWith("U") ? "uint" : "int");
      const flat = [value].flat(Infinity).map((element) => (datatype === "BYTES" ? base64OfText(element) : element));
      return { name, datatype, shape, contents: { [`${field}_contents`]: flat } };
    });
  } else {
    const values = data(exchange).map((datum) => (datum instanceof ImageReference ? datum : base64OfText(datum)));
    inputs = [
      { name: model.inputs[0].name, datatype: "BYTES", shape: [values.length], contents: { bytes_contents: values } },
    ];
  }
  const typed = Object.fromEntries(Object.entries(parameters).map(([name, value]) => [name, parameterValue(value)]));
  const body = { model_name: model.name, inputs, ...optionalParameters({ parameters: typed }) };
  return { path: "inference.GRPCInferenceService/ModelInfer", port: "grpc", headers: {}, body, raw: null, note: "" };
}

function parameterValue(value) {
  if (typeof value === "boolean") return { bool_param: value };
  if (Number.isInteger(value)) return { int64_param: value };
  if (typeof value === "number") return { double_param: value };
  return { string_param: typeof value === "string" ? value : JSON.stringify(value) };
}

function base64OfText(value) {
  return btoa(String.fromCharCode(...new TextEncoder().encode(value)));
}

// By id: the title; `write(exchange)` builds the request; `proxy` is the path on this server that reaches a protocol on
// another port.
export const PROTOCOLS = {
  chariot: { title: "Chariot", write: chariot },
  v2: { title: "V2 JSON", write: kserveV2 },
  v1: { title: "V1", write: kserveV1 },
  tfs: { title: "TensorFlow Serving", write: tensorflowServing, proxy: "page/tensorflow-serving/" },
  grps: { title: "GRPS", write: grps },
  openai: { title: "OpenAI", write: openai },
  grpc: { title: "gRPC", write: grpc, proxy: "page/grpc/" },
};

// The address of a request for clients other than this page.
export function addressOf(written, root, catalogue) {
  if (written.port === undefined) return new URL(written.path, root).href;
  const host = `${root.hostname}:${catalogue.ports[written.port]}`;
  return written.port === "grpc" ? host : `${root.protocol}//${host}/${written.path}`;
}
