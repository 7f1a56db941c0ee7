// A part of the view Try.

import { make } from "./dom.js";

export function extend(container, { model }) {
  container.append(make("p.hint", `${model.name} answers with greetings`));
}
