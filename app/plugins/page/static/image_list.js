// Images to run a model on: dropped, pasted, selected, taken with the camera, or samples.

import { button, fileButton, make, setText } from "./dom.js";
import { receiveFiles } from "./files.js";
import { count } from "./format.js";
import { openCamera, readImage, sleep, wake } from "./images.js";
import { loadSample, sampleThumbnails } from "./samples.js";
import { session } from "./session.js";

const THUMBNAIL_SIZE = 72;
const MAX_CONCURRENT = 2;
const MIN_FILES_FOR_PROGRESS = 8;
// Thumbnails stay when large bitmaps are released and when the view closes.
const thumbnailCanvases = new WeakMap();

// `area` accepts drops; `onshow(image)` shows an image, `onnew(images)` receives added images.
export function imageList({ root, area, catalogue, task, onshow, onnew, onsample, message }) {
  const strip = make("div.strip", { role: "group", "aria-label": "Images", hidden: "" });
  const dialog = make("dialog", { "aria-label": "Camera" });
  const remove = button("Remove all", () => {
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
  const hint = make("span.hint.drop-hint", "Drop or paste images here");
  const sources = make("div.sources", hint, ...fileButton("Choose files", add));
  // Browsers allow the camera only over HTTPS or on a loopback address.
  if (navigator.mediaDevices?.getUserMedia) sources.append(button("Camera", takePhoto));
  const intro = "Images are sent only to this server. You can select several.";
  sources.append(samples.element, make("p.hint.intro", intro));
  const element = make("div.image-list.empty", sources, strip, dialog);
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
          message.show(`Reading images, ${count(loaded.filter(Boolean).length)} of ${count(files.length)} …`);
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
      const others = errors.length === 2 ? "1 other file" : `${count(errors.length - 1)} other files`;
      if (errors.length > 1) errors[0].message += ` ${others} cannot be read either.`;
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
    const name = `${image.name}, ${index + 1} of ${all.length}`;
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
        replace([await camera.take()]);
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

  const stop = receiveFiles(area, add);

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
      stop();
      if (dialog.open) dialog.close();
    },
  };
  return api;
}

// The layout of Try for models with image inputs: the images, the viewer and the sidebar.
export function imageTryLayout({ images, stage, sidebar, viewer, stop, setScore }) {
  return {
    setScore,
    elements: [make("div.try-layout", make("div.image-column", images.element, stage), sidebar)],
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
