// Images to run a model on: dropped, pasted, selected, taken with the camera, or samples.

import { button, fileButton, make, setText } from "./dom.js";
import { isImage, receiveFiles } from "./files.js";
import { count, counted } from "./format.js";
import { loadSample, newImage, openCamera, sampleThumbnails, sleep, wake } from "./images.js";
import { session } from "./session.js";

// `area` accepts drops; `onshow(image)` shows an image, `onnew(images, note)` receives added images and what was
// left out. `observed`: whether the server records requests. `run`: elements beside the steps.
export function imageList({ root, area, catalogue, model, observed, run = [], onshow, onnew, onsample, message }) {
  const dialog = make("dialog", { "aria-label": "Camera" });
  const samples = sampleThumbnails({
    root,
    catalogue,
    model,
    hint: observed ? "Requests are recorded. Click a sample to send one." : "Or click a sample.",
    onchoose(name) {
      const previous = location.hash;
      onsample(name);
      // An unchanged address triggers no event, so load the sample here.
      if (location.hash === previous) api.sample(name);
    },
  });
  const hint = make("span.hint", { title: "Images are sent only to this server." }, "Drop or paste images here");
  const folder = { multiple: "", webkitdirectory: "" };
  const files = [...fileButton("Choose files", add), ...fileButton("Folder", add, folder)];
  const sources = make("div.sources", hint, ...files);
  // Browsers allow the camera only over HTTPS or on a loopback address.
  if (navigator.mediaDevices?.getUserMedia) sources.append(button("Camera", takePhoto));
  sources.append(samples);
  const position = make("span.position", { role: "status" });
  const steps = make(
    "div.row.steps",
    { role: "group", "aria-label": "Images", hidden: "" },
    button("Previous", () => step(-1)),
    button("Next", () => step(1)),
    position,
    ...run,
    button("Remove all", () => {
      message.clear();
      replace([]);
    }),
  );
  const element = make("div.image-list.empty", sources, steps, dialog);
  let shown = null;
  // The last choice of images; it has the name of a sample while that is being loaded.
  let latest = {};

  function add(all) {
    if (!all.length) return;
    latest = {};
    message.clear();
    // A single file may be an image without a type or a known ending.
    const chosen = all.length === 1 ? all : all.filter(isImage);
    const skipped = all.length - chosen.length;
    const note = skipped ? `Skipped ${counted(skipped, "other file")}.` : "";
    const create = (file) => newImage(file, file.webkitRelativePath || file.name || "image.png");
    if (chosen.length) replace(chosen.map(create), note);
    else message.show(note);
  }

  // Replace the images, and show the first.
  function replace(images, note = "") {
    for (const image of session.images) if (image !== shown) sleep(image);
    session.images = images;
    element.classList.toggle("empty", !images.length);
    steps.hidden = images.length < 2;
    onnew(images, note);
    choose(images[0] ?? null);
  }

  function step(distance) {
    const { images } = session;
    choose(images[(images.indexOf(shown) + distance + images.length) % images.length]);
  }

  // Keep showing the previous image until the next one is decoded, then release it.
  async function choose(image) {
    const previous = shown;
    shown = image;
    const place = `${session.images.indexOf(image) + 1} of ${count(session.images.length)}`;
    setText(position, image === null ? "" : `${image.name}, ${place}`);
    if (image !== null) await wake(image).catch(message.showError);
    if (shown === image) onshow(image);
    else if (image !== null) sleep(image);
    if (previous !== null && previous !== shown) sleep(previous);
  }

  async function takePhoto() {
    message.clear();
    let camera;
    try {
      camera = await openCamera();
    } catch (error) {
      message.showError(`The camera cannot be used: ${error.message}`);
      return;
    }
    // The user may have left the view while the browser asked for permission.
    if (!dialog.isConnected) {
      camera.close();
      return;
    }
    const takeButton = button(
      "Take photo",
      async () => {
        replace([newImage(await camera.take(), "camera.jpg")]);
        dialog.close();
      },
      "primary",
    );
    const cancel = button("Cancel", () => dialog.close());
    dialog.replaceChildren(camera.element, make("p.row", takeButton, cancel));
    dialog.onclose = camera.close;
    dialog.showModal();
    await camera.play();
  }

  const stop = receiveFiles(area, element, add);

  const api = {
    element,
    replace,
    choose,
    shown: () => shown,
    // The sample that is shown, or will be.
    sampleName: () => latest.sample ?? shown?.sample,
    async sample(name) {
      const own = (latest = { sample: name });
      message.clear();
      try {
        const image = await loadSample(root, name);
        // The user may have added images meanwhile.
        if (own === latest) replace([image]);
      } catch (error) {
        message.showError(error);
      }
      delete own.sample;
    },
    leave() {
      if (dialog.open) dialog.close();
    },
    close() {
      latest = {};
      stop();
      api.leave();
    },
  };
  return api;
}

// The layout of Try for models with image inputs: the images, the viewer and the sidebar, and what is below.
export function imageTryLayout({ images, stage, sidebar, viewer, stop, below = [] }) {
  return {
    elements: [make("div.try-layout", make("div.image-column", images.element, stage), sidebar), ...below],
    sidebar,
    restore() {
      if (session.images.length && images.shown() === null) images.replace(session.images);
    },
    sample: (name) => images.sample(name),
    leave: images.leave,
    close() {
      stop();
      images.close();
      viewer.close();
    },
  };
}
