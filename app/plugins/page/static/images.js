// Images from files, the clipboard, the camera and samples, upright as the server decodes them.

import { failure, request } from "./connection.js";
import { make } from "./dom.js";

const THUMBNAIL_SIZE = 44;

// What the server says about an image; `details` is its own sentence if this one replaces it.
export class ImageError extends Error {
  constructor(name, reason, details = "") {
    const formats = reason.match(/^Expected an encoded image \((.*?)\)/)?.[1];
    super(formats ? `${name} is not an image. Supported: ${formats}.` : `${name}: ${reason}`);
    this.details = formats ? reason : details;
  }
}

// An image that is decoded when it is shown; until then its size is unknown.
export const newImage = (blob, name) => ({ name, blob, bitmap: null, width: 0, height: 0 });

// Read an image, or throw ImageError or ConnectionLost. The server converts formats that the browser cannot show.
export async function readImage(blob, name) {
  const bitmap = await createImageBitmap(blob, { imageOrientation: "from-image" }).catch(() => null);
  if (bitmap !== null) return { name, blob, bitmap, width: bitmap.width, height: bitmap.height };
  const headers = { "Content-Type": "application/octet-stream" };
  const response = await request(new URL("preview", import.meta.url), { method: "POST", headers, body: blob });
  if (!response.ok) {
    const answer = await response.json().catch(() => ({}));
    throw new ImageError(name, answer.error ?? failure(response.status));
  }
  // The preview may be smaller than the image.
  const [width, height] = response.headers.get("image-size").split("x").map(Number);
  return { name, blob, bitmap: await createImageBitmap(await response.blob()), width, height };
}

export function base64Of(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(new Error("The file cannot be read"));
    // Use a fixed type: a file's own type may contain a comma, which marks where base64 begins.
    reader.readAsDataURL(new Blob([blob], { type: "image/x" }));
  });
}

// Open the camera. `take` stops it and returns the photo.
export async function openCamera() {
  const stream = await navigator.mediaDevices.getUserMedia({ video: { width: { ideal: 1280 } } });
  const video = document.createElement("video");
  video.muted = true;
  video.playsInline = true;
  video.srcObject = stream;
  const close = () => stream.getTracks().forEach((track) => track.stop());
  return {
    element: video,
    play: () => video.play(),
    close,
    async take() {
      // Before the first frame, the video has no size.
      await video.play();
      const canvas = new OffscreenCanvas(video.videoWidth, video.videoHeight);
      canvas.getContext("2d").drawImage(video, 0, 0);
      close();
      return canvas.convertToBlob({ type: "image/jpeg", quality: 0.92 });
    },
  };
}

// A decoded image takes four bytes per pixel, so only visible images stay decoded. Throw like readImage.
export async function wake(image) {
  if (image.bitmap !== null) return;
  const { bitmap, width, height } = await readImage(image.blob, image.name);
  Object.assign(image, { bitmap, width, height });
}

export function sleep(image) {
  image.bitmap?.close();
  image.bitmap = null;
}

// The samples that suit a model, the best first: those of its task that show something that it knows.
function samplesFor(catalogue, { task_type: task, labels, layout }) {
  const words = new Set([layout, ...labels.flatMap((label) => label.toLowerCase().split(/\W+/))]);
  const ofTask = catalogue.samples.filter((sample) => sample.task_types.includes(task));
  const known = ofTask.filter(({ shows }) => shows.some((word) => words.has(word)));
  return known.length || labels.length ? known : ofTask;
}

export function sampleFor(catalogue, model) {
  return samplesFor(catalogue, model)[0]?.name;
}

// Whether a sample may be shown to a model; unknown images belong to the user and suit every model.
export function suits(catalogue, name, model) {
  return name === undefined || samplesFor(catalogue, model).some((sample) => sample.name === name);
}

function sampleUrl(root, name) {
  return new URL(`page/samples/${encodeURIComponent(name)}`, root);
}

export async function loadSample(root, name) {
  const response = await request(sampleUrl(root, name));
  if (!response.ok) throw new Error(`There is no sample called ${name}`);
  return { ...newImage(await response.blob(), name), sample: name };
}

// Thumbnails of the samples that suit a model. The first is large, with a hint, while no image is shown.
export function sampleThumbnails({ root, catalogue, model, hint, onchoose }) {
  const side = { width: THUMBNAIL_SIZE, height: THUMBNAIL_SIZE };
  const buttons = samplesFor(catalogue, model).map(({ name }) => {
    const image = make("img", { src: sampleUrl(root, name), alt: "", ...side });
    const button = make("button", { type: "button", title: name, "aria-label": `Sample ${name}` }, image);
    button.addEventListener("click", () => onchoose(name));
    return button;
  });
  const attributes = { role: "group", "aria-label": "Samples" };
  const element = make("div.samples", attributes, make("p.hint", hint), ...buttons);
  element.hidden = !buttons.length;
  return element;
}
