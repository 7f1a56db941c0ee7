// The Python of a request of KServe V2 with tritonclient, over HTTP or gRPC.

import { credentials, fileBytes, literal, program, pythonString } from "./snippets.js";
import { addressOf, tensors } from "./request_parts.js";

const TYPES = { FP16: "float16", FP32: "float32", FP64: "float64", BOOL: "bool", BYTES: "object" };

// The Python with the client of `kind`: "http" or "grpc".
export function withTriton(kind) {
  return (written, { root, catalogue, model, data, parameters }) => {
    const key = credentials(catalogue);
    const base = `${root.host}${root.pathname}`.replace(/\/$/, "");
    const host = kind === "grpc" ? addressOf(written, root, catalogue) : base;
    const client = [pythonString(host), ...(root.protocol === "https:" ? ["ssl=True"] : [])];
    const isTensor = model.takes === "tensor";
    const inputs = isTensor ? tensors({ model, data }) : [{ name: model.inputs[0].name, datatype: "BYTES" }];
    const values = isTensor ? null : data.map((datum) => (datum.blob ? fileBytes(datum) : pythonString(datum)));
    const code = [`client = triton.InferenceServerClient(${client.join(", ")})`, "inputs = []"];
    for (const { name, datatype, data: value } of inputs) {
      const content = isTensor ? literal(value, data) : `[${values.join(", ")}]`;
      code.push(
        `array = numpy.array(${content}, dtype="${TYPES[datatype] ?? datatype.toLowerCase()}")`,
        `tensor = triton.InferInput(${pythonString(name)}, array.shape, "${datatype}")`,
        "inputs.append(tensor.set_data_from_numpy(array))",
      );
    }
    const options = [pythonString(model.name), "inputs"];
    const known = Object.entries(parameters).map(([name, value]) => [name, kind === "grpc" ? scalar(value) : value]);
    if (known.length) options.push(`parameters=${literal(Object.fromEntries(known), data)}`);
    if (key.value) options.push(`headers={"x-api-key": ${key.value}}`);
    code.push(`answer = client.infer(${options.join(", ")})`);
    if (isTensor) for (const { name } of model.outputs) code.push(`print(answer.as_numpy(${pythonString(name)}))`);
    else code.push('for records in answer.as_numpy("predictions"):', "    print(records.decode())");
    const imports = ["import numpy", `import tritonclient.${kind} as triton`, ...key.imports];
    return { code: program(imports, code), needs: `"tritonclient[${kind}]"` };
  };
}

// A parameter of gRPC is no list.
function scalar(value) {
  return typeof value === "object" ? JSON.stringify(value) : value;
}
