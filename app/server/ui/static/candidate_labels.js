// The field for the classes that zero-shot models look for, which no file of the model names.

import { field } from "./controls.js";
import { make } from "./dom.js";
import { session } from "./session.js";
import { text } from "./text.js";

const strings = text.try;
const NAME = "candidate_labels";

// Return { element, show(models), parameters(model), missing(models) }. `onchange` is called with new labels.
export function candidateLabels(onchange) {
  const input = make("input", { type: "text", value: (session.parameters[NAME] ?? []).join(", ") });
  const element = field(strings.names[NAME], input, strings.listHint);
  const labels = () => input.value.split(",").map((label) => label.trim()).filter(Boolean);
  const takes = (model) => NAME in model.parameters;
  input.addEventListener("change", onchange);
  return {
    element,
    show(models) {
      element.hidden = !models.some(takes);
    },
    parameters: (model) => (takes(model) && labels().length ? { [NAME]: labels() } : {}),
    // The first model that cannot answer without labels, or undefined.
    missing: (models) => models.find((model) => takes(model) && !model.parameters[NAME].default?.length && !labels().length),
  };
}
