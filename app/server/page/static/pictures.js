// Pictures: from files, the clipboard, the camera and the server's samples, upright as the server sees them.

import { text } from "./text.js";

// `bitmap` is null where the browser cannot show what the server may still read, such as TIFF.
export async function readPicture(blob, name) {
  const bitmap = await createImageBitmap(blob, { imageOrientation: "from-image" }).catch(() => null);
  return { name, blob, bitmap, width: bitmap?.width ?? 0, height: bitmap?.height ?? 0 };
}

export function base64Of(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(new Error(text.try.unreadable));
    // A type of our own: that of a file may have a comma in it, which is where the base64 begins.
    reader.readAsDataURL(new Blob([blob], { type: "image/x" }));
  });
}

export async function loadSample(root, name) {
  const response = await fetch(new URL(`page/samples/${encodeURIComponent(name)}`, root)).catch(() => null);
  if (!response?.ok) throw new Error(text.try.noSample(name));
  return readPicture(await response.blob(), name);
}

export function sampleFor(catalogue, task) {
  return catalogue.samples.find((each) => each.task_types.includes(task))?.name ?? catalogue.samples[0]?.name;
}

// The files among what was dropped or pasted. A pasted picture is called as every other one: image.png.
export function filesOf(transfer) {
  return [...(transfer?.files ?? [])];
}

// A picture of the camera, taken by `stop`, which gives it back.
export async function openCamera() {
  const stream = await navigator.mediaDevices.getUserMedia({ video: { width: { ideal: 1280 } } });
  const video = document.createElement("video");
  video.muted = true;
  video.playsInline = true;
  video.srcObject = stream;
  const close = () => stream.getTracks().forEach((each) => each.stop());
  return {
    element: video,
    play: () => video.play(),
    close,
    async take() {
      const canvas = new OffscreenCanvas(video.videoWidth, video.videoHeight);
      canvas.getContext("2d").drawImage(video, 0, 0);
      close();
      return readPicture(await canvas.convertToBlob({ type: "image/jpeg", quality: 0.92 }), "camera.jpg");
    },
  };
}

// A decoded picture takes four bytes a pixel. Only those that are looked at are kept awake.
export async function wake(picture) {
  if (picture.bitmap === null && picture.width > 0) {
    picture.bitmap = (await readPicture(picture.blob, picture.name)).bitmap;
  }
  return picture;
}

export function sleep(picture) {
  picture.bitmap?.close();
  picture.bitmap = null;
}
