// What the requests of all protocols consist of.
//
// One inference as a protocol writes it: { path, port, headers, body, raw, note }. A body contains
// `new ImageReference(index)`, so that it can become a request, a shell command or Python. `port` is the name of a
// protocol with a port of its own.

const JSON_TYPE = "application/json";
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

export const encodePath = encodeURIComponent;
// The parameters, if there are any.
export const optionalParameters = ({ parameters }) => (isNotEmpty(parameters) ? { parameters } : {});
export const isNotEmpty = (parameters) => Object.keys(parameters).length > 0;
export const json = (path, body, options) => ({
  path,
  headers: { "Content-Type": JSON_TYPE },
  body,
  raw: null,
  note: "",
  ...options,
});

// The inputs: references to images, or texts.
export function data({ model, data: values }) {
  return model.takes === "text" ? values : values.map((_, index) => new ImageReference(index));
}

export function names({ model, data: values }) {
  return values.map((_, index) => `${model.takes === "text" ? "text" : "image"}-${index}`);
}

// The shape of nested lists.
function shapeOf(value) {
  const shape = [];
  for (let level = value; Array.isArray(level); level = level[0]) shape.push(level.length);
  return shape;
}

export function tensors({ model, data: [values] }) {
  return Object.entries(values).map(([name, value]) => {
    const declared = model.inputs.find((input) => input.name === name);
    return { name, shape: shapeOf(value), datatype: declared?.datatype ?? "FP32", data: value };
  });
}

// Split tensors along their first dimension, as V1 and TensorFlow Serving require.
export function rows({ model, data: [values] }) {
  const columns = Object.entries(values);
  const count = Math.min(...columns.map(([, value]) => value.length));
  return Array.from({ length: count }, (_, row) => {
    if (model.inputs.length === 1) return columns[0][1][row];
    return Object.fromEntries(columns.map(([name, value]) => [name, value[row]]));
  });
}

// The address of a request for clients other than this page.
export function addressOf(written, root, catalogue) {
  if (written.port === undefined) return new URL(written.path, root).href;
  const host = `${root.hostname}:${catalogue.ports[written.port]}`;
  return written.port === "grpc" ? host : `${root.protocol}//${host}/${written.path}`;
}
