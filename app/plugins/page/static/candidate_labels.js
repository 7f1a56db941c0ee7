// The parameters of the views Batch and Compare: a low threshold, and the classes that zero-shot models look for, which
// no file of the model names.

import { field, make } from "./dom.js";
import { itemsOf } from "./parameters.js";
import { session } from "./session.js";

const NAME = "candidate_labels";
// The views request low scores too, and filter the received answer.
export const MIN_SCORE = 0.05;

// Return { element, show(models), parameters(model), missing(models) }. `onchange` is called with new labels.
export function candidateLabels(onchange) {
  const input = make("input", { type: "text", value: (session.parameters[NAME] ?? []).join(", ") });
  const element = field("Candidate labels", input, "Separate values with commas.");
  const labels = () => itemsOf(input.value);
  const takes = (model) => NAME in model.parameters;
  input.addEventListener("change", onchange);
  return {
    element,
    show(models) {
      element.hidden = !models.some(takes);
    },
    parameters: (model) => ({
      ...(model.parameters.score_threshold ? { score_threshold: MIN_SCORE } : {}),
      ...(takes(model) && labels().length ? { [NAME]: labels() } : {}),
    }),
    // What to tell the user if a model cannot answer without labels, or "".
    missing(models) {
      const lacking = models.find(
        (model) => takes(model) && !model.parameters[NAME].default?.length && !labels().length,
      );
      return lacking ? `Enter candidate labels: ${lacking.name} finds what they name.` : "";
    },
  };
}
