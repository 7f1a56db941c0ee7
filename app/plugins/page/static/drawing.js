// Results as shapes: creating, filtering, hit testing and painting.
//
// Coordinates are pixels of the upright image; pixel i covers i to i + 1.

import { taskOf } from "./catalogue.js";
import { isolated } from "./format.js";
import { colourOf, inkOn } from "./palette.js";

const LABEL_SIZE = 12;
const LINE_WIDTH = 2;
const MAX_LABEL_CHARACTERS = 40;
const POINT_RADIUS = 3;
// Keypoints that a model takes to be hidden more likely than not are left out.
const MIN_VISIBILITY = 0.5;

const paths = new WeakMap();
const probe = new OffscreenCanvas(1, 1).getContext("2d");

const RINGS = {
  box: ({ xmin, ymin, xmax, ymax }) => [
    [
      [xmin, ymin],
      [xmax, ymin],
      [xmax, ymax],
      [xmin, ymax],
    ],
  ],
  // Sizes are fractions of the image regardless of rotation, so scale first and rotate then.
  oriented({ cx, cy, w, h, r }, width, height) {
    const [along, across] = [(w * width) / 2, (h * height) / 2];
    const [cos, sin] = [Math.cos(r), Math.sin(r)];
    const corner = (x, y) => [cx * width + x * cos - y * sin, cy * height + x * sin + y * cos];
    return [[corner(-along, -across), corner(along, -across), corner(along, across), corner(-along, across)]];
  },
  point: ({ x, y }) => [[[x, y]]],
  // Contours run through the centres of pixels.
  contour: ({ contour }) => contour.map((ring) => ring.map(({ x, y }) => [x + 0.5, y + 0.5])),
};

// The shapes of `records` in an image of this size: { index, label, score, kind, rings, bounds, points }.
export function shapesOf(task, records, width, height) {
  const { geometry } = taskOf(task);
  if (geometry === null) return [];
  return records.map((record, index) => shapeOf(geometry, record, index, width, height));
}

// The shapes of the boxes, polygons and points that an answer in words locates.
export function locatedShapes(objects) {
  const kindOf = (record) => ("contour" in record ? "contour" : "xmin" in record ? "box" : "point");
  return objects.map((record, index) => shapeOf(kindOf(record), record, index));
}

function shapeOf(kind, record, index, width, height) {
  const { label, score, keypoints = kind === "point" ? [[record.x, record.y]] : [] } = record;
  const rings = RINGS[kind](record, width, height);
  const points = keypoints.filter(([, , visibility = 1]) => visibility >= MIN_VISIBILITY);
  return { index, label, score, kind, rings, bounds: boundsOf(rings), points };
}

// The records of an image with their index: shapes, if the model returns some and the size of the image is known.
export function resultsOf(model, records, { width, height }) {
  if (model.geometry !== null && width) return shapesOf(model.task_type, records, width, height);
  return records.map((record, index) => ({ ...record, index }));
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

// Filter results like the server: by score, then at most `max`, best first.
export function filterResults(results, { score, max = Infinity }) {
  const selected = results.filter((result) => result.score >= score);
  return selected.sort((one, other) => other.score - one.score).slice(0, max);
}

// Intersection over union: exact for oriented boxes, of the bounding boxes for contours.
export function overlap(one, other) {
  const width = Math.min(one.bounds[2], other.bounds[2]) - Math.max(one.bounds[0], other.bounds[0]);
  const height = Math.min(one.bounds[3], other.bounds[3]) - Math.max(one.bounds[1], other.bounds[1]);
  if (width <= 0 || height <= 0) return 0;
  const oriented = one.kind === "oriented";
  const shared = oriented ? area(clip(one.rings[0], other.rings[0])) : width * height;
  const size = oriented ? (shape) => area(shape.rings[0]) : ({ bounds: [l, t, r, b] }) => (r - l) * (b - t);
  const union = size(one) + size(other) - shared;
  return union > 0 ? shared / union : 0;
}

function area(ring) {
  let twice = 0;
  ring.forEach(([x, y], index) => {
    const [nextX, nextY] = ring[(index + 1) % ring.length];
    twice += x * nextY - nextX * y;
  });
  return Math.abs(twice) / 2;
}

// Sutherland-Hodgman clipping of one convex ring by another, both clockwise.
function clip(ring, by) {
  let points = ring;
  by.forEach(([ax, ay], edge) => {
    const [bx, by_] = by[(edge + 1) % by.length];
    const side = ([x, y]) => (bx - ax) * (y - ay) - (by_ - ay) * (x - ax);
    const next = [];
    points.forEach((point, index) => {
      const before = points[(index + points.length - 1) % points.length];
      const [here, there] = [side(point), side(before)];
      if (here >= 0 !== there >= 0) {
        const share = there / (there - here);
        next.push(before.map((value, axis) => value + share * (point[axis] - value)));
      }
      if (here >= 0) next.push(point);
    });
    points = next;
  });
  return points;
}

// The smallest shape at a point of the image, or undefined. `tolerance`: extra pixels around each shape.
export function hit(shapes, x, y, tolerance = 0) {
  const size = ({ bounds: [l, t, r, b] }) => (r - l) * (b - t);
  const near = shapes.filter(
    ({ bounds: [l, t, r, b] }) => x >= l - tolerance && x <= r + tolerance && y >= t - tolerance && y <= b + tolerance,
  );
  const inside = near.filter((shape) => shape.kind === "box" || probe.isPointInPath(pathOf(shape), x, y, "evenodd"));
  return (inside.length ? inside : near).reduce(
    (best, shape) => (best === undefined || size(shape) < size(best) ? shape : best),
    undefined,
  );
}

function pathOf(shape) {
  if (paths.has(shape)) return paths.get(shape);
  const path = new Path2D();
  for (const ring of shape.rings) {
    // A contour of one point is one pixel.
    if (ring.length === 1) path.rect(ring[0][0] - 0.5, ring[0][1] - 0.5, 1, 1);
    else {
      ring.forEach(([x, y], index) => (index ? path.lineTo(x, y) : path.moveTo(x, y)));
      path.closePath();
    }
  }
  paths.set(shape, path);
  return path;
}

// What is drawn of shapes, in every viewer: `opacity` is that of masks.
export const style = { outlines: true, points: true, names: true, scores: true, opacity: 0.4 };

// Paint `shapes`, best first, in pixels of the image. `scale`: canvas pixels per image pixel. `strong`: highlight.
// `width`: image width, which labels must not exceed. `unit`: line width factor. `all`: the shapes of the image, also
// those outside the view.
export function paint(context, shapes, { scale = 1, strong = false, unit = 1, width = Infinity, all = shapes } = {}) {
  context.lineJoin = "round";
  context.lineWidth = ((strong ? 2 : 1) * LINE_WIDTH * unit) / scale;
  for (const shape of [...shapes].reverse()) {
    const path = pathOf(shape);
    context.fillStyle = context.strokeStyle = colourOf(shape.label);
    if (shape.kind === "contour" || strong) {
      context.globalAlpha = shape.kind !== "contour" ? 0.18 : Math.min(1, style.opacity + (strong ? 0.2 : 0));
      context.fill(path, "evenodd");
      context.globalAlpha = 1;
    }
    if (style.outlines || strong) context.stroke(path);
    if (style.points || strong) paintPoints(context, shape, unit / scale);
  }
  const occupied = [];
  // One label needs no name on every shape.
  const isNamed = (shape) => shape === all[0] || all.some(({ label }) => label !== all[0].label);
  for (const shape of shapes) drawLabel(context, shape, occupied, { scale, unit, width, all, isNamed });
}

// Keypoints are dots with an edge that contrasts with them. `unit`: image pixels for each pixel of the screen.
function paintPoints(context, { label, points }, unit) {
  for (const [x, y] of points) {
    for (const [colour, radius] of [
      [inkOn(label), POINT_RADIUS + 1],
      [colourOf(label), POINT_RADIUS],
    ]) {
      context.beginPath();
      context.arc(x, y, radius * unit, 0, 2 * Math.PI);
      context.fillStyle = colour;
      context.fill();
    }
  }
}

// Paint the label at the upper left corner, in the same size at every zoom. Put it inside the shape, or leave it out,
// where a better result has its label already. That of an oriented box, such as a line of text, covers no other one.
function drawLabel(context, shape, occupied, { scale, unit, width: max, all, isNamed }) {
  const text = textOf(shape, isNamed(shape));
  if (!text) return;
  const size = (LABEL_SIZE * unit) / scale;
  const [width, height] = [size * (widthOf(context, text) + 0.7), size * 1.45];
  const [start, upper, end, lower] = shape.bounds;
  const corner = Math.max(0, Math.min(start - (LINE_WIDTH * unit) / scale / 2, max - width));
  const [above, inside] = [[corner, upper - height], [corner, Math.max(upper, 0)]];
  const beside = [end, start - width].map((x) => [x, (upper + lower - height) / 2]);
  const isOriented = shape.kind === "oriented";
  const place = [above, ...(isOriented ? beside : []), inside].find(([x, y]) => {
    const plate = { kind: shape.kind, bounds: [x, y, x + width, y + height] };
    plate.rings = [[[x, y], [x + width, y], [x + width, y + height], [x, y + height]]];
    if (x < 0 || y < 0 || (x > 0 && x + width > max)) return false;
    if (isOriented && all.some((other) => other !== shape && overlap(plate, other) > 0)) return false;
    return occupied.every(([l, t, r, b]) => x >= r || x + width <= l || y >= b || y + height <= t);
  });
  if (place === undefined) return;
  const [left, top] = place;
  occupied.push([left, top, left + width, top + height]);
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

function textOf(shape, isNamed) {
  const characters = [...String(shape.label)];
  const isLong = characters.length > MAX_LABEL_CHARACTERS;
  const label = isLong ? `${characters.slice(0, MAX_LABEL_CHARACTERS).join("")}…` : characters.join("");
  const score = `${(100 * shape.score).toFixed(0)} %`;
  return [style.names && isNamed && isolated(label), style.scores && score].filter(Boolean).join(" ");
}

const widths = new Map();

// The width of a text at font size 1.
function widthOf(context, text) {
  if (!widths.has(text)) {
    context.font = fontOf(LABEL_SIZE);
    widths.set(text, context.measureText(text).width / LABEL_SIZE);
  }
  return widths.get(text);
}

// The image with a saliency map and `shapes`, at its own size.
export async function toPng({ bitmap, width, height }, shapes, map = null) {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  context.drawImage(bitmap, 0, 0, width, height);
  if (map !== null) {
    context.globalAlpha = map.opacity;
    context.drawImage(map.bitmap, 0, 0, width, height);
    context.globalAlpha = 1;
  }
  paint(context, shapes, { width, unit: Math.max(1, Math.max(width, height) / 1000) });
  return canvas.convertToBlob({ type: "image/png" });
}
