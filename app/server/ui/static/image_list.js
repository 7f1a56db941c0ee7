// Images to run a model on: dropped, pasted, selected, taken with the camera, or samples.

import { button } from "./controls.js";
import { make, setText } from "./dom.js";
import { filesOf, openCamera, readImage, sleep, wake } from "./images.js";
import { loadSample, sampleThumbnails } from "./samples.js";
import { session } from "./session.js";
import { text } from "./text.js";

const strings = text.try;
const THUMBNAIL_SIZE = 72;
const MAX_CONCURRENT = 2;
const MIN_FILES_FOR_PROGRESS = 8;
// Thumbnails stay when large bitmaps are released and when the view closes.
const thumbnailCanvases = new WeakMap();

// `area` accepts drops; `onshow(image)` shows an image, `onnew(images)` receives added images.
export function imageList({ root, area, catalogue, task, onshow, onnew, onsample, message }) {
  const input = make("input", {
    type: "file",
    accept: "image/*",
    multiple: "",
    class: "visually-hidden",
    "aria-label": strings.chooseFiles,
  });
  input.tabIndex = -1;
  const strip = make("div", { class: "strip", role: "group", "aria-label": strings.images, hidden: "" });
  const dialog = make("dialog", { "aria-label": strings.camera });
  const remove = button(strings.remove, () => {
    message.clear();
    replace([]);
  });
  const samples = sampleThumbnails({
    root,
    catalogue,
    onchoose(name) {
      const previous = location.hash;
      onsample(name);
      // An unchanged address triggers no event, so load the sample here.
      if (location.hash === previous) api.sample(name);
    },
  });
  samples.show(task);
  const sources = make(
    "div",
    { class: "sources" },
    make("span", { class: "hint drop-hint" }, strings.drop),
    button(strings.chooseFiles, () => input.click()),
    input,
  );
  // Browsers allow the camera only over HTTPS or on a loopback address.
  if (navigator.mediaDevices?.getUserMedia) sources.append(button(strings.camera, takePhoto));
  sources.append(samples.element, make("p", { class: "hint intro" }, strings.intro));
  const element = make("div", { class: "image-list empty" }, sources, strip, dialog);
  const thumbnails = new WeakMap();
  let shown = null;
  let latestRequest = 0;

  // Read a few files at a time and keep only the first decoded: a hundred photos do not fit into memory.
  async function add(files) {
    if (!files.length) return;
    const thisRequest = (latestRequest += 1);
    message.clear();
    const [loaded, errors] = [[], []];
    let next = 0;
    const worker = async () => {
      for (let index = next++; index < files.length && thisRequest === latestRequest; index = next++) {
        const image = await readImage(files[index], files[index].name || "image.png").catch((error) => error);
        if (image instanceof Error) errors.push(image);
        else {
          await drawThumbnail(image);
          if (index > 0) sleep(image);
        }
        loaded[index] = image;
        if (files.length > MIN_FILES_FOR_PROGRESS && thisRequest === latestRequest) {
          message.show(strings.reading(loaded.filter(Boolean).length, files.length));
        }
      }
    };
    await Promise.all(Array.from({ length: MAX_CONCURRENT }, worker));
    const images = loaded.filter((image) => image && !(image instanceof Error));
    if (thisRequest !== latestRequest) {
      for (const image of images) sleep(image);
      return;
    }
    message.clear();
    replace(images);
    if (errors.length) {
      errors[0].message = text.imageInput.andOthers(errors[0].message, errors.length - 1);
      message.showError(errors[0]);
    }
  }

  async function drawThumbnail(image) {
    if (thumbnailCanvases.has(image)) return;
    const canvas = make("canvas", { width: THUMBNAIL_SIZE, height: THUMBNAIL_SIZE });
    thumbnailCanvases.set(image, canvas);
    if (!image.bitmap) return;
    const scale = Math.max(THUMBNAIL_SIZE / image.width, THUMBNAIL_SIZE / image.height);
    const [width, height] = [image.width, image.height].map((side) => Math.ceil(side * scale));
    // Draw a small bitmap: an invisible canvas may keep its source in memory.
    const size = { resizeWidth: width, resizeHeight: height, resizeQuality: "medium" };
    const small = await createImageBitmap(image.bitmap, size).catch(() => null);
    if (small) canvas.getContext("2d").drawImage(small, (THUMBNAIL_SIZE - width) / 2, (THUMBNAIL_SIZE - height) / 2);
  }

  // Replace the images, and show the first.
  function replace(images) {
    for (const image of session.images) if (image !== shown) sleep(image);
    session.images = images;
    element.classList.toggle("empty", !images.length);
    strip.hidden = images.length < 2;
    strip.replaceChildren(...images.map(createThumbnail), remove);
    for (const image of images.slice(1)) sleep(image);
    onnew(images);
    choose(images[0] ?? null);
  }

  function createThumbnail(image, index, all) {
    const name = strings.image(image.name, index + 1, all.length);
    drawThumbnail(image);
    const attributes = { type: "button", "aria-label": name, title: image.name };
    const thumbnail = make("button", attributes, thumbnailCanvases.get(image));
    thumbnail.addEventListener("click", () => choose(image));
    thumbnails.set(image, thumbnail);
    return thumbnail;
  }

  // Keep showing the previous image until the next one is decoded, then release it.
  async function choose(image) {
    const previous = shown;
    shown = image;
    for (const other of session.images) thumbnails.get(other)?.setAttribute("aria-pressed", other === image);
    if (image !== null) await wake(image);
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
      message.showError(strings.cameraFailed(error.message));
      return;
    }
    const takeButton = button(
      strings.takePhoto,
      async () => {
        replace([await camera.take()]);
        dialog.close();
      },
      "primary",
    );
    dialog.replaceChildren(
      camera.element,
      make(
        "p",
        { class: "row" },
        takeButton,
        button(strings.cancel, () => dialog.close()),
      ),
    );
    dialog.onclose = camera.close;
    dialog.showModal();
    await camera.play();
  }

  input.addEventListener("change", () => {
    add([...input.files]);
    input.value = "";
  });
  const paste = (event) => {
    const files = filesOf(event.clipboardData);
    if (!files.length) return;
    event.preventDefault();
    add(files);
  };
  const drag = (event) => {
    event.preventDefault();
    area.classList.toggle("drag-over", event.type === "dragover");
    if (event.type === "drop") add(filesOf(event.dataTransfer));
  };
  document.addEventListener("paste", paste);
  for (const event of ["dragover", "dragleave", "drop"]) area.addEventListener(event, drag);

  const api = {
    element,
    replace,
    choose,
    shown: () => shown,
    async sample(name) {
      const thisRequest = (latestRequest += 1);
      message.clear();
      try {
        const image = await loadSample(root, name);
        // The user may have added images meanwhile.
        if (thisRequest === latestRequest) replace([image]);
        else sleep(image);
      } catch (error) {
        message.showError(error);
      }
    },
    // Write the result on the thumbnail.
    setBadge(image, label) {
      const thumbnail = thumbnails.get(image);
      if (thumbnail === undefined) return;
      if (thumbnail.children.length < 2) thumbnail.append(make("span"));
      setText(thumbnail.lastChild, label);
    },
    close() {
      latestRequest += 1;
      document.removeEventListener("paste", paste);
      for (const event of ["dragover", "dragleave", "drop"]) area.removeEventListener(event, drag);
      if (dialog.open) dialog.close();
    },
  };
  return api;
}

// The layout of Try for models with image inputs: the images, the viewer and the sidebar.
export function imageTryLayout({ images, stage, sidebar, viewer, stop, setScore }) {
  return {
    setScore,
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
