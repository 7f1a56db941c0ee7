// Saliency maps in colour, and images with a map.

import { paint } from "./drawing.js";

// Inferno, in equal steps: its lightness increases evenly, so it is readable without colour vision.
const STOPS = [
  [0, 0, 4],
  [87, 16, 110],
  [188, 55, 84],
  [249, 142, 9],
  [252, 255, 164],
];
const LONGEST = 1280;

export const GRADIENT = `linear-gradient(to right, ${STOPS.map((colour) => `rgb(${colour.join(" ")})`).join(", ")})`;

// Colour a grey base64 PNG of an explanation, no larger than a screen shows.
export async function coloured(png) {
  const bytes = Uint8Array.from(atob(png), (character) => character.charCodeAt(0));
  const grey = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const scale = Math.min(1, LONGEST / Math.max(grey.width, grey.height));
  const canvas = new OffscreenCanvas(Math.ceil(grey.width * scale), Math.ceil(grey.height * scale));
  const context = canvas.getContext("2d");
  context.drawImage(grey, 0, 0, canvas.width, canvas.height);
  const image = context.getImageData(0, 0, canvas.width, canvas.height);
  const colours = Array.from({ length: 256 }, (_, value) => colourOf(value / 255));
  for (let at = 0; at < image.data.length; at += 4) {
    image.data.set(colours[image.data[at]], at);
  }
  context.putImageData(image, 0, 0);
  return createImageBitmap(canvas);
}

function colourOf(value) {
  const place = value * (STOPS.length - 1);
  const [low, share] = [
    Math.min(Math.floor(place), STOPS.length - 2),
    place - Math.min(Math.floor(place), STOPS.length - 2),
  ];
  return [...STOPS[low].map((channelValue, channel) => Math.round(channelValue + share * (STOPS[low + 1][channel] - channelValue))), 255];
}

// The image at its own size with the map and its shapes, as PNG.
export async function toOverlaidPng({ bitmap, width, height }, map, opacity, shapes) {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  context.drawImage(bitmap, 0, 0);
  context.globalAlpha = opacity;
  context.drawImage(map, 0, 0, width, height);
  context.globalAlpha = 1;
  paint(context, shapes, { unit: Math.max(1, Math.max(width, height) / 1000) });
  return canvas.convertToBlob({ type: "image/png" });
}
