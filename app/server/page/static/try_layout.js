// The layout of Try for models with image inputs: the images, the viewer and the sidebar.

import { make } from "./dom.js";
import { session } from "./session.js";

export function trialOf({ pictures, stage, side, seen, stop }) {
  return {
    elements: [make("div", { class: "trial" }, make("div", { class: "showing" }, pictures.element, stage), side)],
    begin() {
      if (session.pictures.length && pictures.shown() === null) pictures.put(session.pictures);
    },
    sample: (name) => pictures.sample(name),
    close() {
      stop();
      pictures.close();
      seen.close();
    },
  };
}
