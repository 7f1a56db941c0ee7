// Results as shapes: creating, filtering, hit testing and painting.
//
// Coordinates are pixels of the upright image; pixel i covers i to i + 1.

import { isolated } from "./format.js";

const GOLDEN = 137.508;
const ON_PICTURE = 12;
const LINE = 2;
const LONGEST_NAME = 40;

// The colour of a label, derived from its text alone. The golden angle separates neighbouring hashes.
export function colourOf(label) {
  const [hue, light] = toneOf(label);
  return `rgb(${channels(hue, 0.85, light).join(" ")})`;
}

// Black or white, whichever is readable on the label's colour.
export function inkOn(label) {
  const [hue, light] = toneOf(label);
  const [red, green, blue] = channels(hue, 0.85, light).map((channel) => {
    const share = channel / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

function toneOf(label) {
  let hash = 2166136261;
  for (const character of String(label)) hash = Math.imul(hash ^ character.codePointAt(0), 16777619) >>> 0;
  return [((hash % 3600) * GOLDEN) % 360, 0.46 + 0.06 * ((hash >>> 16) % 3)];
}

function channels(hue, saturation, light) {
  const reach = saturation * Math.min(light, 1 - light);
  return [0, 8, 4].map((offset) => {
    const place = (offset + hue / 30) % 12;
    return Math.round(255 * (light - reach * Math.max(-1, Math.min(place - 3, 9 - place, 1))));
  });
}

const RINGS = {
  OBJECT_DETECTION: ({ xmin, ymin, xmax, ymax }) => [
    [
      [xmin, ymin],
      [xmax, ymin],
      [xmax, ymax],
      [xmin, ymax],
    ],
  ],
  // Sizes are fractions of the image regardless of rotation, so scale first and rotate then.
  ORIENTED_OBJECT_DETECTION({ cx, cy, w, h, r }, width, height) {
    const [along, across] = [(w * width) / 2, (h * height) / 2];
    const [cos, sin] = [Math.cos(r), Math.sin(r)];
    const corner = (x, y) => [cx * width + x * cos - y * sin, cy * height + x * sin + y * cos];
    return [[corner(-along, -across), corner(along, -across), corner(along, across), corner(-along, across)]];
  },
  // Contours run through the centres of pixels.
  IMAGE_SEGMENTATION: ({ contour }) => contour.map((ring) => ring.map(({ x, y }) => [x + 0.5, y + 0.5])),
};

// The shapes of `records` in an image of this size: { index, label, score, kind, rings, bounds }.
export function shapesOf(task, records, width, height) {
  const rings = RINGS[task];
  if (rings === undefined) return [];
  const kind = { OBJECT_DETECTION: "box", ORIENTED_OBJECT_DETECTION: "turned" }[task] ?? "contour";
  return records.map((record, index) => {
    const found = rings(record, width, height);
    return { index, label: record.label, score: record.score, kind, rings: found, bounds: boundsOf(found) };
  });
}

function boundsOf(rings) {
  const bounds = [Infinity, Infinity, -Infinity, -Infinity];
  for (const ring of rings) {
    for (const [x, y] of ring) {
      bounds[0] = Math.min(bounds[0], x);
      bounds[1] = Math.min(bounds[1], y);
      bounds[2] = Math.max(bounds[2], x);
      bounds[3] = Math.max(bounds[3], y);
    }
  }
  return bounds;
}

// Filter shapes like the server: by score and labels (a Set), then NMS within a label, then at most `max`, best first.
export function narrow(shapes, { score = 0, iou = 1, most = Infinity, labels = null } = {}) {
  const kept = [];
  const rivals = new Map();
  for (const shape of [...shapes].sort((one, other) => other.score - one.score)) {
    if (shape.score < score || (labels !== null && !labels.has(shape.label))) continue;
    const own = rivals.get(shape.label) ?? [];
    if (iou < 1 && own.some((rival) => overlap(rival, shape) > iou)) continue;
    rivals.set(shape.label, [...own, shape]);
    kept.push(shape);
    if (kept.length >= most) break;
  }
  return kept;
}

// Intersection over union: exact for oriented boxes, of the bounding boxes for contours.
export function overlap(one, other) {
  const width = Math.min(one.bounds[2], other.bounds[2]) - Math.max(one.bounds[0], other.bounds[0]);
  const height = Math.min(one.bounds[3], other.bounds[3]) - Math.max(one.bounds[1], other.bounds[1]);
  if (width <= 0 || height <= 0) return 0;
  const turned = one.kind === "turned";
  const shared = turned ? area(clipped(one.rings[0], other.rings[0])) : width * height;
  const size = turned ? (shape) => area(shape.rings[0]) : ({ bounds: [l, t, r, b] }) => (r - l) * (b - t);
  const union = size(one) + size(other) - shared;
  return union > 0 ? shared / union : 0;
}

function area(ring) {
  let twice = 0;
  ring.forEach(([x, y], place) => {
    const [nextX, nextY] = ring[(place + 1) % ring.length];
    twice += x * nextY - nextX * y;
  });
  return Math.abs(twice) / 2;
}

// Sutherland-Hodgman clipping of one convex ring by another, both clockwise.
function clipped(ring, by) {
  let left = ring;
  by.forEach(([ax, ay], place) => {
    const [bx, by_] = by[(place + 1) % by.length];
    const side = ([x, y]) => (bx - ax) * (y - ay) - (by_ - ay) * (x - ax);
    const next = [];
    left.forEach((point, index) => {
      const before = left[(index + left.length - 1) % left.length];
      const [here, there] = [side(point), side(before)];
      if (here >= 0 !== there >= 0) {
        const share = there / (there - here);
        next.push(before.map((value, axis) => value + share * (point[axis] - value)));
      }
      if (here >= 0) next.push(point);
    });
    left = next;
  });
  return left;
}

// The smallest shape at a point of the image, or undefined. `tolerance`: extra pixels around each shape.
export function hit(shapes, x, y, slack = 0) {
  const size = ({ bounds: [l, t, r, b] }) => (r - l) * (b - t);
  const near = shapes.filter(
    ({ bounds: [l, t, r, b] }) => x >= l - slack && x <= r + slack && y >= t - slack && y <= b + slack,
  );
  const inside = near.filter((shape) => shape.kind === "box" || covers(shape.rings, x, y));
  return (inside.length ? inside : near).reduce(
    (best, shape) => (best === undefined || size(shape) < size(best) ? shape : best),
    undefined,
  );
}

// The even-odd rule.
function covers(rings, x, y) {
  let inside = false;
  for (const ring of rings) {
    ring.forEach(([ax, ay], place) => {
      const [bx, by] = ring[(place + 1) % ring.length];
      if (ay > y !== by > y && x < ax + ((y - ay) / (by - ay)) * (bx - ax)) inside = !inside;
    });
  }
  return inside;
}

function pathOf({ rings }) {
  const path = new Path2D();
  for (const ring of rings) {
    // A contour of one point is one pixel.
    if (ring.length === 1) path.rect(ring[0][0] - 0.5, ring[0][1] - 0.5, 1, 1);
    else {
      ring.forEach(([x, y], place) => (place ? path.lineTo(x, y) : path.moveTo(x, y)));
      path.closePath();
    }
  }
  return path;
}

const paths = new WeakMap();

// Paint `shapes`, best first, in pixels of the image. `scale`: canvas pixels per image pixel. `strong`: highlight.
// `width`: image width, which labels must not exceed. `unit`: line width factor.
export function paint(context, shapes, { scale = 1, strong = false, unit = 1, width = Infinity } = {}) {
  context.lineJoin = "round";
  context.lineWidth = ((strong ? 2 : 1) * LINE * unit) / scale;
  for (const shape of [...shapes].reverse()) {
    if (!paths.has(shape)) paths.set(shape, pathOf(shape));
    const path = paths.get(shape);
    context.fillStyle = context.strokeStyle = colourOf(shape.label);
    if (shape.kind === "contour" || strong) {
      context.globalAlpha = shape.kind !== "contour" ? 0.18 : strong ? 0.6 : 0.4;
      context.fill(path, "evenodd");
      context.globalAlpha = 1;
    }
    context.stroke(path);
  }
  const taken = [];
  for (const shape of shapes) name(context, shape, taken, { scale, unit, width });
}

// Paint the label at the upper left corner, in the same size at every zoom. Put it inside the shape, or leave it out,
// where a better result has its label already.
function name(context, shape, taken, { scale, unit, width: most }) {
  const [text, wide] = writingOf(context, shape);
  const size = (ON_PICTURE * unit) / scale;
  const [width, height] = [size * (wide + 0.7), size * 1.45];
  const left = Math.max(0, Math.min(shape.bounds[0] - (LINE * unit) / scale / 2, most - width));
  const above = shape.bounds[1] - height;
  const top = [...(above >= 0 ? [above] : []), Math.max(shape.bounds[1], 0)].find((y) =>
    taken.every(([l, t, r, b]) => left >= r || left + width <= l || y >= b || y + height <= t),
  );
  if (top === undefined) return;
  taken.push([left, top, left + width, top + height]);
  context.font = fontOf(size);
  context.textBaseline = "middle";
  context.fillStyle = colourOf(shape.label);
  context.fillRect(left, top, width, height);
  context.fillStyle = inkOn(shape.label);
  context.fillText(text, left + size * 0.35, top + height * 0.53);
}

function fontOf(size) {
  return `600 ${size}px system-ui, "DejaVu Sans", sans-serif`;
}

const writings = new WeakMap();

// The label text of a shape, and its width at font size 1.
function writingOf(context, shape) {
  if (!writings.has(shape)) {
    const letters = [...String(shape.label)];
    const label = letters.length > LONGEST_NAME ? `${letters.slice(0, LONGEST_NAME).join("")}…` : letters.join("");
    const text = `${isolated(label)} ${(100 * shape.score).toFixed(0)} %`.trim();
    context.font = fontOf(ON_PICTURE);
    writings.set(shape, [text, context.measureText(text).width / ON_PICTURE]);
  }
  return writings.get(shape);
}

// The image with `shapes`, at its own size.
export async function toPng({ bitmap, width, height }, shapes) {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  context.drawImage(bitmap, 0, 0);
  paint(context, shapes, { width, unit: Math.max(1, Math.max(width, height) / 1000) });
  return canvas.convertToBlob({ type: "image/png" });
}
