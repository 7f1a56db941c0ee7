// What is drawn of shapes: switches and the opacity of masks, the same in every viewer.

import { slider } from "./controls.js";
import { make, setText } from "./dom.js";
import { setStyle, style } from "./drawing.js";
import { text } from "./text.js";

const strings = text.viewer;
const open = new Set();

// Return { element, show(shapes), close() }. `onchange` redraws the viewer after a change in any viewer.
export function drawingSwitches(onchange) {
  const boxes = ["outlines", "points", "names", "scores"].map((key) => {
    const input = make("input", { type: "checkbox" });
    input.addEventListener("change", () => change({ [key]: input.checked }));
    return { key, input, label: make("span", {}, strings[key]) };
  });
  const opacity = slider({
    label: strings.opacity,
    value: style.opacity,
    oninput: (value) => change({ opacity: value }),
    format: (value) => `${Math.round(100 * value)} %`,
  });
  const labels = boxes.map(({ input, label }) => make("label", { class: "switch" }, input, label));
  const attributes = { class: "switches", role: "group", "aria-label": strings.drawn, hidden: "" };
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
      setText(boxes[0].label, hasMasks ? strings.outlines : strings.boxes);
    },
    close: () => open.delete(self),
  };
  open.add(self);
  self.update();
  return self;
}

function change(changes) {
  setStyle(changes);
  for (const switches of open) switches.update();
}
