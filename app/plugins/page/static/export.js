// Results as files: JSON, COCO and CSV.

import { area as areaOf } from "./drawing.js";
import { colourOf } from "./palette.js";

function file(value) {
  return new Blob([`${JSON.stringify(value, null, 1)}\n`], { type: "application/json" });
}

// `answers`: a list of { image, records, shapes, error }.
export function jsonFile(model, parameters, answers) {
  return file({
    model: model.name,
    version: model.version,
    task_type: model.task_type,
    parameters,
    // An image that was not shown yet has no known size, and one without an answer has no records.
    pictures: answers.map(({ image: { name, width, height }, records, error }) => {
      const size = width ? { width, height } : {};
      return { name, ...size, ...(records ? { records } : {}), ...(error ? { error: error.message } : {}) };
    }),
  });
}

// Boxes are left, top, width, height in pixels. Contours with holes or parts are RLE, because polygons cannot express
// them; oriented boxes are polygons.
export function coco(model, answers) {
  const labels = [...model.labels];
  const annotations = [];
  answers.forEach(({ image, shapes }, index) => {
    for (const shape of shapes) {
      if (!labels.includes(shape.label)) labels.push(shape.label);
      const [left, top, right, bottom] = shape.bounds;
      const { area, segmentation } = segmentationOf(shape, image);
      annotations.push({
        id: annotations.length + 1,
        image_id: index + 1,
        category_id: labels.indexOf(shape.label) + 1,
        bbox: [left, top, right - left, bottom - top],
        area,
        segmentation,
        iscrowd: Array.isArray(segmentation) ? 0 : 1,
        score: shape.score,
      });
    }
  });
  return file({
    images: answers.map(({ image: { name, width, height } }, index) => ({
      id: index + 1,
      file_name: name,
      width,
      height,
    })),
    annotations,
    categories: labels.map((name, index) => ({ id: index + 1, name, color: colourOf(name) })),
  });
}

function segmentationOf(shape, image) {
  const {
    kind,
    rings,
    bounds: [left, top, right, bottom],
  } = shape;
  if (kind === "contour" && (rings.length > 1 || rings[0].length < 3)) return runLengths(rings, image);
  const area = kind === "box" ? (right - left) * (bottom - top) : areaOf(rings[0]);
  return { area, segmentation: kind === "box" ? [] : [rings[0].flat()] };
}

// COCO RLE, column by column, by the even-odd rule with the rings included.
function runLengths(rings, { width, height }) {
  const mask = new Uint8Array(width * height);
  for (let column = 0; column < width; column += 1) {
    const crossings = [];
    for (const ring of rings) {
      ring.forEach(([ax, ay], index) => {
        const [bx, by] = ring[(index + 1) % ring.length];
        const x = column + 0.5;
        if (ax > x !== bx > x) crossings.push(ay + ((x - ax) / (bx - ax)) * (by - ay));
      });
    }
    crossings.sort((one, other) => one - other);
    for (let index = 0; index + 1 < crossings.length; index += 2) {
      const from = Math.max(0, Math.ceil(crossings[index] - 0.5));
      mask.fill(
        1,
        column * height + from,
        column * height + Math.min(height, Math.floor(crossings[index + 1] - 0.5) + 1),
      );
    }
  }
  for (const ring of rings)
    ring.forEach((point, index) => line(mask, height, width, point, ring[(index + 1) % ring.length]));
  const counts = [0];
  let [inside, area] = [0, 0];
  for (const pixel of mask) {
    if (pixel !== inside) {
      counts.push(0);
      inside = pixel;
    }
    counts[counts.length - 1] += 1;
    area += pixel;
  }
  return { area, segmentation: { size: [height, width], counts } };
}

function line(mask, height, width, [ax, ay], [bx, by]) {
  const steps = Math.max(1, Math.abs(bx - ax), Math.abs(by - ay));
  for (let step = 0; step <= steps; step += 1) {
    const column = Math.floor(ax + ((bx - ax) * step) / steps);
    const row = Math.floor(ay + ((by - ay) * step) / steps);
    if (column >= 0 && column < width && row >= 0 && row < height) mask[column * height + row] = 1;
  }
}

// RFC 4180, for spreadsheets.
export function csvOf(rows) {
  return rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

// Prefix an apostrophe where a spreadsheet would run the value as a formula.
function cell(value) {
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
