// Requests of OpenAI's API, which has no vision or tensor models.

import { ImageReference, json } from "./request_parts.js";
import { credentials, imageReader, literal, program, pythonString } from "./snippets.js";

export const title = "OpenAI";
export const order = 60;
export const fits = (model) => model.returns === "texts";

const OWN = new Set(["model", "messages", "max_completion_tokens", "temperature", "top_p", "seed", "stop"]);

export function write({ model, data: values, parameters: { prompts, max_new_tokens, ...parameters } }) {
  const path = "openai/v1/chat/completions";
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

export function python({ body }, { root, catalogue, data }) {
  const key = credentials(catalogue);
  const url = pythonString(new URL("openai/v1", root).href);
  const entries = Object.entries(body);
  const others = Object.fromEntries(entries.filter(([name]) => !OWN.has(name)));
  const options = entries.filter(([name]) => OWN.has(name));
  if (Object.keys(others).length) options.push(["extra_body", others]);
  const code = [
    ...imageReader(data),
    `client = OpenAI(base_url=${url}, api_key=${key.value ?? '"none"'})`,
    "answer = client.chat.completions.create(",
    ...options.map(([name, value]) => `    ${name}=${literal(value, data, 1)},`),
    ")",
    "print(answer.choices[0].message.content)",
  ];
  const isEncoding = data.some(({ blob }) => blob);
  return { code: program(["from openai import OpenAI", ...key.imports], code, isEncoding), needs: "openai" };
}
