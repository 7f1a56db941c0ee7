// Choose one image: a file, a sample, or anything dropped or pasted in the view.

import { fileButton, make, setText } from "./dom.js";
import { receiveFiles } from "./files.js";
import { readImage, wake } from "./images.js";
import { loadSample, sampleThumbnails } from "./samples.js";

// `onimage(image, sample)` receives each image, `onerror(error)` each failure. Return { element, sample(name),
// showSamples(task), take(image), close() }.
export function imageInput(main, { root, catalogue, onimage, onerror }) {
  const name = make("span.hint.image-name");
  const samples = sampleThumbnails({ root, catalogue, onchoose: (chosen) => sample(chosen) });
  const choose = fileButton("Choose an image", useFiles, { accept: "image/*" });
  const element = make("div.image-input", ...choose, samples.element, name);
  let latest = 0;

  // If two images are being read, the later request wins.
  async function take(loading, sampleName) {
    const thisRequest = (latest += 1);
    try {
      const image = await loading;
      if (thisRequest !== latest) return;
      setText(name, `${image.name}, ${image.width} × ${image.height}`);
      onimage(image, sampleName);
    } catch (error) {
      if (thisRequest === latest) onerror(error);
    }
  }

  const sample = (sampleName) => take(loadSample(root, sampleName), sampleName);
  const stop = receiveFiles(main, useFiles);

  function useFiles(files) {
    if (files.length) take(readImage(files[0], files[0].name), "");
  }

  return {
    element,
    sample,
    showSamples: samples.show,
    take: (image) => take(wake(image), ""),
    close() {
      latest = -1;
      stop();
    },
  };
}
