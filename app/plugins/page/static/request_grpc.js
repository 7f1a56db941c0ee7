// Requests of KServe V2 over gRPC.

import { ImageReference, data, optionalParameters, tensors } from "./request_parts.js";
import { withTriton } from "./triton_client.js";

export const title = "gRPC";
export const order = 70;
export const port = "grpc";
// The path on this server that reaches the port.
export const proxy = "page/grpc/";
export const python = withTriton("grpc");

const CONTENT_FIELDS = { FP32: "fp32", FP64: "fp64", BOOL: "bool", INT64: "int64", UINT64: "uint64", BYTES: "bytes" };

// A ModelInferRequest as protobuf JSON, with bytes in base64.
export function write(exchange) {
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
  return { path: "inference.GRPCInferenceService/ModelInfer", port, headers: {}, body, raw: null, note: "" };
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
