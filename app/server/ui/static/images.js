// Images from files, the clipboard, the camera and samples, upright as the server decodes them.

import { text } from "./text.js";

// `bitmap` is null for formats that the browser cannot show, such as TIFF; the server may still read them.
export async function readImage(blob, name) {
  const bitmap = await createImageBitmap(blob, { imageOrientation: "from-image" }).catch(() => null);
  return { name, blob, bitmap, width: bitmap?.width ?? 0, height: bitmap?.height ?? 0 };
}

export function base64Of(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(new Error(text.try.unreadable));
    // Use a fixed type: a file's own type may contain a comma, which marks where base64 begins.
    reader.readAsDataURL(new Blob([blob], { type: "image/x" }));
  });
}

export async function loadSample(root, name) {
  const response = await fetch(new URL(`page/samples/${encodeURIComponent(name)}`, root)).catch(() => null);
  if (!response?.ok) throw new Error(text.try.noSample(name));
  return readImage(await response.blob(), name);
}

export function sampleFor(catalogue, task) {
  return catalogue.samples.find((sample) => sample.task_types.includes(task))?.name ?? catalogue.samples[0]?.name;
}

// The dropped or pasted files. Browsers name every pasted image image.png.
export function filesOf(transfer) {
  return [...(transfer?.files ?? [])];
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
      const canvas = new OffscreenCanvas(video.videoWidth, video.videoHeight);
      canvas.getContext("2d").drawImage(video, 0, 0);
      close();
      return readImage(await canvas.convertToBlob({ type: "image/jpeg", quality: 0.92 }), "camera.jpg");
    },
  };
}

// A decoded image takes four bytes per pixel, so only visible images stay decoded.
export async function wake(image) {
  if (image.bitmap === null && image.width > 0) {
    image.bitmap = (await readImage(image.blob, image.name)).bitmap;
  }
  return image;
}

export function sleep(image) {
  image.bitmap?.close();
  image.bitmap = null;
}
