// Requests of OpenAI's API.

import { ImageReference, json } from "./request_parts.js";

export const title = "OpenAI";
export const order = 60;

const ONLY_TEXTS = "OpenAI's API serves models that answer with text. Choose such a model, or another protocol.";

// OpenAI's API has no vision or tensor models.
export function write({ model, data: values, parameters: { prompts, max_new_tokens, ...parameters } }) {
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
