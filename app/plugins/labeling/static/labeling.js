// In Use in code: how Label Studio labels with the model.

import { codeBlock } from "./code_block.js";
import { disclosure, make } from "./dom.js";

// The tag that the model fills, by the geometry of its objects or by what it returns, as in app/plugins/labeling/plan.py.
const TAGS = {
  box: "RectangleLabels",
  oriented: "RectangleLabels",
  contour: "BrushLabels",
  classes: "Choices",
  texts: "TextArea",
};
const ESCAPED = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\n": "&#10;" };
const LABEL_STUDIO =
  "Label Studio: start this server with --label-studio, and connect this address as the model of a project.";
const CREDENTIALS = "Choose Basic authentication: any user, and a key of this server as the password.";

const quoteAttribute = (text) => `"${text.replace(/[&<>"\n]/g, (character) => ESCAPED[character])}"`;

function labelConfig(model, tag) {
  const item = tag === "Choices" ? "Choice" : "Label";
  const labels = model.labels.map((label) => `    <${item} value=${quoteAttribute(label)}/>`);
  return [
    "<View>",
    '  <Image name="image" value="$image"/>',
    `  <${tag} name="label" toName="image">`,
    ...(tag === "TextArea" ? [] : labels),
    `  </${tag}>`,
    "</View>",
  ].join("\n");
}

export function extend(container, { tools, catalogue, model }) {
  const tag = TAGS[model.geometry ?? model.returns];
  if (!["image", "question"].includes(model.takes) || tag === undefined) return;
  const [address, config] = [codeBlock("Address for Label Studio"), codeBlock("Labelling configuration")];
  address.show(new URL(`label-studio/${encodeURIComponent(model.name)}`, tools.root).href);
  config.show(labelConfig(model, tag), model.labels.length || tag === "TextArea" ? "" : "Add labels of the model.");
  const hint = make("p.hint", catalogue.requires_credentials ? `${LABEL_STUDIO} ${CREDENTIALS}` : LABEL_STUDIO);
  container.append(disclosure("Labelling tools", "", hint, address.element, config.element));
}
