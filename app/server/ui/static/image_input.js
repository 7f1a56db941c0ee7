// Choose one image: a file, a sample, or anything dropped or pasted in the view.

import { button } from "./controls.js";
import { make, setText } from "./dom.js";
import { filesOf, readImage, wake } from "./images.js";
import { loadSample, sampleThumbnails } from "./samples.js";
import { text } from "./text.js";

const strings = text.imageInput;

// `onimage(image, sample)` receives each image, `onerror(error)` each failure. Return { element, sample(name),
// showSamples(task), take(image), close() }.
export function imageInput(main, { root, catalogue, onimage, onerror }) {
  const input = make("input", { type: "file", accept: "image/*", hidden: "", "aria-label": strings.choose });
  const name = make("span", { class: "hint image-name" });
  const samples = sampleThumbnails({ root, catalogue, onchoose: (chosen) => sample(chosen) });
  const element = make(
    "div",
    { class: "image-input" },
    button(strings.choose, () => input.click()),
    input,
    samples.element,
    name,
  );
  let latest = 0;

  // If two images are being read, the later request wins.
  async function take(loading, sampleName) {
    const thisRequest = (latest += 1);
    try {
      const image = await loading;
      if (thisRequest !== latest) return;
      setText(name, strings.size(image.name, image.width, image.height));
      onimage(image, sampleName);
    } catch (error) {
      if (thisRequest === latest) onerror(error);
    }
  }

  const sample = (sampleName) => take(loadSample(root, sampleName), sampleName);
  const useFiles = (files) => files.length && take(readImage(files[0], files[0].name), "");
  const drop = (event) => {
    event.preventDefault();
    if (event.type === "drop") useFiles(filesOf(event.dataTransfer));
  };
  const paste = (event) => useFiles(filesOf(event.clipboardData));
  input.addEventListener("change", () => {
    useFiles([...input.files]);
    // Otherwise selecting the same file again would trigger no event.
    input.value = "";
  });
  for (const type of ["dragover", "drop"]) main.addEventListener(type, drop);
  document.addEventListener("paste", paste);
  return {
    element,
    sample,
    showSamples: samples.show,
    take: (image) => take(wake(image), ""),
    close() {
      latest = -1;
      for (const type of ["dragover", "drop"]) main.removeEventListener(type, drop);
      document.removeEventListener("paste", paste);
    },
  };
}
