// Saliency maps in colour.

// Inferno, in equal steps: its lightness increases evenly, so it is readable without colour vision.
const COLOUR_STOPS = [
  [0, 0, 4],
  [87, 16, 110],
  [188, 55, 84],
  [249, 142, 9],
  [252, 255, 164],
];
const MAX_SIDE = 1280;

const CSS_STOPS = COLOUR_STOPS.map((colour) => `rgb(${colour.join(" ")})`);
export const GRADIENT = `linear-gradient(to right, ${CSS_STOPS.join(", ")})`;

// Colour a grey base64 PNG of an explanation, no larger than a screen shows.
export async function colourMap(png) {
  const bytes = Uint8Array.from(atob(png), (character) => character.charCodeAt(0));
  const grey = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const scale = Math.min(1, MAX_SIDE / Math.max(grey.width, grey.height));
  const canvas = new OffscreenCanvas(Math.ceil(grey.width * scale), Math.ceil(grey.height * scale));
  const context = canvas.getContext("2d");
  context.drawImage(grey, 0, 0, canvas.width, canvas.height);
  const image = context.getImageData(0, 0, canvas.width, canvas.height);
  const colours = Array.from({ length: 256 }, (_, value) => mapColour(value / 255));
  for (let offset = 0; offset < image.data.length; offset += 4) {
    image.data.set(colours[image.data[offset]], offset);
  }
  context.putImageData(image, 0, 0);
  return createImageBitmap(canvas);
}

function mapColour(value) {
  const position = value * (COLOUR_STOPS.length - 1);
  const low = Math.min(Math.floor(position), COLOUR_STOPS.length - 2);
  const share = position - low;
  const next = COLOUR_STOPS[low + 1];
  return [...COLOUR_STOPS[low].map((start, channel) => Math.round(start + share * (next[channel] - start))), 255];
}
