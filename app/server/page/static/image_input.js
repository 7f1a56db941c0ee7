// Choose one image: a file, a sample, or anything dropped or pasted in the view.

import { button } from "./controls.js";
import { make, say } from "./dom.js";
import { filesOf, loadSample, readPicture, wake } from "./images.js";
import { text } from "./text.js";

const words = text.picker;

// `onimage(image, sample)` receives each image, `onerror(sentence)` each failure. Return { element, sample(name),
// take(image), close() }.
export function picker(main, { root, samples, onpicture, onfault }) {
  const input = make("input", { type: "file", accept: "image/*", hidden: "", "aria-label": words.choose });
  const name = make("span", { class: "hint picked" });
  const offered = samples.map((entry) => button(entry.name, () => sample(entry.name)));
  const element = make(
    "div",
    { class: "picker" },
    button(words.choose, () => input.click()),
    input,
    ...(offered.length ? [make("span", { class: "hint" }, words.samples), ...offered] : []),
    name,
  );
  let turn = 0;

  // If two images are being read, the later request wins.
  async function take(reading, from) {
    const mine = (turn += 1);
    try {
      const picture = await reading;
      if (mine !== turn) return;
      if (picture.bitmap === null) throw new Error(words.unreadable(picture.name));
      say(name, words.size(picture.name, picture.width, picture.height));
      onpicture(picture, from);
    } catch (error) {
      if (mine === turn) onfault(error.message);
    }
  }

  const sample = (wanted) => take(loadSample(root, wanted), wanted);
  const file = (files) => files.length && take(readPicture(files[0], files[0].name), "");
  const drop = (event) => {
    event.preventDefault();
    if (event.type === "drop") file(filesOf(event.dataTransfer));
  };
  const paste = (event) => file(filesOf(event.clipboardData));
  input.addEventListener("change", () => {
    file([...input.files]);
    // Otherwise selecting the same file again would trigger no event.
    input.value = "";
  });
  for (const type of ["dragover", "drop"]) main.addEventListener(type, drop);
  document.addEventListener("paste", paste);
  return {
    element,
    sample,
    take: (picture) => take(wake(picture), ""),
    close() {
      turn = -1;
      for (const type of ["dragover", "drop"]) main.removeEventListener(type, drop);
      document.removeEventListener("paste", paste);
    },
  };
}
