// In Use in code: how Label Studio and CVAT label with the model.

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
const CVAT = "CVAT: install charioteer[cvat] where you run the command, and replace 1 by the number of the task.";

const quoteAttribute = (text) => `"${text.replace(/[&<>"\n]/g, (character) => ESCAPED[character])}"`;
const quoteWord = (text) => `'${text.replaceAll("'", "'\\''")}'`;

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

function cvatCommand(model, root) {
  const values = [`url=str:${root.href.replace(/\/$/, "")}`, `model=str:${model.name}`, `labels=str:${model.labels}`];
  return [
    "echo 'from charioteer import cvat_function as create' > cvat_function.py",
    "cvat-cli task auto-annotate 1 --function-file cvat_function.py \\",
    ...values.map((value, index) => `  --function-parameter ${quoteWord(value)}${index < 2 ? " \\" : ""}`),
  ].join("\n");
}

export function extend(container, { tools, catalogue, model }) {
  const tag = TAGS[model.geometry ?? model.returns];
  if (!["image", "question"].includes(model.takes) || tag === undefined) return;
  const [address, config, command] = [
    codeBlock("Address for Label Studio"),
    codeBlock("Labelling configuration"),
    codeBlock("Command for CVAT"),
  ];
  address.show(new URL(`label-studio/${encodeURIComponent(model.name)}`, tools.root).href);
  config.show(labelConfig(model, tag), model.labels.length || tag === "TextArea" ? "" : "Add labels of the model.");
  const steps = [
    make("p.hint", catalogue.requires_credentials ? `${LABEL_STUDIO} ${CREDENTIALS}` : LABEL_STUDIO),
    address.element,
    config.element,
  ];
  if (tag !== "TextArea") {
    command.show(cvatCommand(model, tools.root), catalogue.requires_credentials ? "Add key_file=str:<file>." : "");
    steps.push(make("p.hint", CVAT), command.element);
  }
  container.append(disclosure("Labelling tools", "", ...steps));
}
