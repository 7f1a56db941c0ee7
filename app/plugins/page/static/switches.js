// What is drawn of shapes: switches and the opacity of masks, the same in every viewer.

import { make, setText, slider } from "./dom.js";
import { style } from "./drawing.js";

const LABELS = { outlines: "Outlines", points: "Keypoints", names: "Names", scores: "Scores" };
const open = new Set();

// Return { element, show(shapes), close() }. `onchange` redraws the viewer after a change in any viewer.
export function drawingSwitches(onchange) {
  const boxes = Object.entries(LABELS).map(([key, name]) => {
    const input = make("input", { type: "checkbox" });
    input.addEventListener("change", () => change({ [key]: input.checked }));
    return { key, input, label: make("span", name) };
  });
  const opacity = slider({
    label: "Mask opacity",
    value: style.opacity,
    oninput: (value) => change({ opacity: value }),
    format: (value) => `${Math.round(100 * value)} %`,
  });
  const labels = boxes.map(({ input, label }) => make("label.switch", input, label));
  const attributes = { class: "switches", role: "group", "aria-label": "Drawn", hidden: "" };
  const element = make("div", attributes, ...labels, opacity.element);
  const self = {
    element,
    update() {
      for (const { key, input } of boxes) input.checked = style[key];
      opacity.set(style.opacity);
      onchange();
    },
    show(shapes) {
      const hasMasks = shapes.some(({ kind }) => kind === "contour");
      element.hidden = !shapes.length;
      opacity.element.hidden = !hasMasks;
      labels[1].hidden = !shapes.some(({ points }) => points.length);
      setText(boxes[0].label, hasMasks ? "Outlines" : "Boxes");
    },
    close: () => open.delete(self),
  };
  open.add(self);
  self.update();
  return self;
}

function change(changes) {
  Object.assign(style, changes);
  for (const switches of open) switches.update();
}
