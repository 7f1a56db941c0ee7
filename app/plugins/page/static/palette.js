// The colour of each label, as commands draw it: the server assigns them (app/plugins/authoring/drawing/palette.py).

import { make } from "./dom.js";

const assigned = new Map();
let palette = ["#808080"];

// Take the colours of a catalogue. A label of several models has that of the first.
export function assignColours(catalogue) {
  palette = catalogue.palette;
  [...catalogue.models].reverse().forEach(useColours);
}

// Give the labels of this model its own colours.
export function useColours({ labels, colours }) {
  labels.forEach((label, index) => assigned.set(label, colours[index]));
}

export function colourOf(label) {
  return assigned.get(label) ?? palette[crc32(new TextEncoder().encode(label)) % palette.length];
}

// A small square in the colour of a label.
export function swatch(label) {
  const element = make("span.swatch");
  element.style.background = colourOf(label);
  return element;
}

// Black or white, whichever is readable on the label's colour.
export function inkOn(label) {
  const [red, green, blue] = [1, 3, 5].map((start) => linear(Number.parseInt(colourOf(label).slice(start, start + 2), 16)));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

function linear(channel) {
  const share = channel / 255;
  return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
}

function crc32(bytes) {
  let sum = -1;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit += 1) sum = (sum >>> 1) ^ (sum & 1 && 0xedb88320);
  }
  return ~sum >>> 0;
}
