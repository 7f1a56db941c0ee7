// The layout of Try for models with image inputs: the images, the viewer and the sidebar.

import { make } from "./dom.js";
import { session } from "./session.js";

export function imageTryLayout({ images, stage, sidebar, viewer, stop }) {
  return {
    elements: [
      make("div", { class: "try-layout" }, make("div", { class: "image-column" }, images.element, stage), sidebar),
    ],
    restore() {
      if (session.images.length && images.shown() === null) images.replace(session.images);
    },
    sample: (name) => images.sample(name),
    close() {
      stop();
      images.close();
      viewer.close();
    },
  };
}
