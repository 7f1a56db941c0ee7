// The colour of each label: by class index and as far apart as possible, or the colour that the label names.

import { make } from "./dom.js";

const NAMED = {
  red: [221, 30, 38],
  orange: [244, 126, 24],
  yellow: [242, 214, 36],
  green: [32, 150, 62],
  cyan: [22, 180, 196],
  teal: [18, 140, 140],
  blue: [34, 86, 228],
  purple: [136, 50, 196],
  violet: [136, 50, 196],
  pink: [238, 96, 178],
  magenta: [214, 30, 170],
  brown: [136, 82, 36],
  black: [26, 26, 26],
  white: [245, 245, 245],
  grey: [128, 128, 128],
  gray: [128, 128, 128],
};
const NAME = new RegExp(`\\b(${Object.keys(NAMED).join("|")})\\b`, "i");
const MIN_DISTANCE = 25;
const NEARBY = 24;

// The colours to choose from: vivid ones for every label, greys only for labels that name one.
const VIVID = [0.5, 0.38, 0.62, 0.74].flatMap((lightness) =>
  [0.9, 0.55].flatMap((saturation) =>
    Array.from({ length: 24 }, (_, step) => hslToRgb(15 * step, saturation, lightness)),
  ),
);
const GREYS = [26, 60, 94, 128, 162, 204, 245].map((level) => [level, level, level]);
const COLOURS = [...VIVID, ...GREYS];
const assigned = new Map();

// Assign a colour to every label of the models of a catalogue. A label keeps its first colour.
export function assignColours(models) {
  for (const { labels } of models) assignLabels(labels);
}

function assignLabels(labels) {
  // How far each colour is from those of this model.
  const room = COLOURS.map(() => Infinity);
  const take = (taken) => {
    COLOURS.forEach((colour, index) => (room[index] = Math.min(room[index], distance(colour, taken))));
  };
  for (const label of labels) if (assigned.has(label)) take(assigned.get(label));
  labels.forEach((label, index) => {
    if (assigned.has(label)) return;
    const name = String(label).match(NAME)?.[0].toLowerCase();
    const best = name === undefined ? farthest(room, index) : nearest(room, NAMED[name]);
    assigned.set(label, best);
    take(best);
  });
}

function farthest(room, index) {
  const widest = Math.max(...room.slice(0, VIVID.length));
  // More labels than colours: begin again.
  return COLOURS[widest > 0 ? room.indexOf(widest) : index % VIVID.length];
}

function nearest(room, named) {
  const near = COLOURS.map((colour, index) => ({ colour, room: room[index], off: distance(colour, named) }))
    .sort((one, other) => one.off - other.off)
    .slice(0, NEARBY);
  const free = near.find((candidate) => candidate.room >= MIN_DISTANCE);
  return (free ?? near.reduce((best, candidate) => (candidate.room > best.room ? candidate : best))).colour;
}

export function colourOf(label) {
  return `rgb(${channelsOf(label).join(" ")})`;
}

// A small square in the colour of a label.
export function swatch(label) {
  const element = make("span.swatch");
  element.style.background = colourOf(label);
  return element;
}

// Black or white, whichever is readable on the label's colour.
export function inkOn(label) {
  const [red, green, blue] = channelsOf(label).map(linear);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

// Labels that no model declares get a colour derived from their text. The golden angle separates neighbouring hashes.
function channelsOf(label) {
  if (assigned.has(label)) return assigned.get(label);
  let hash = 2166136261;
  for (const character of String(label)) hash = Math.imul(hash ^ character.codePointAt(0), 16777619) >>> 0;
  return hslToRgb(((hash % 3600) * 137.508) % 360, 0.85, 0.46 + 0.06 * ((hash >>> 16) % 3));
}

function hslToRgb(hue, saturation, lightness) {
  const chroma = saturation * Math.min(lightness, 1 - lightness);
  return [0, 8, 4].map((offset) => {
    const position = (offset + hue / 30) % 12;
    return Math.round(255 * (lightness - chroma * Math.max(-1, Math.min(position - 3, 9 - position, 1))));
  });
}

function linear(channel) {
  const share = channel / 255;
  return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
}

function distance(one, other) {
  return Math.hypot(...one.map((value, channel) => value - other[channel]));
}
