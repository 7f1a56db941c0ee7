// An image with shapes, with zoom, pan and pointing.

import { make, setText } from "./dom.js";
import { hit, paint } from "./drawing.js";
import { drawingSwitches } from "./switches.js";
import { ZOOM_STEP, addGestures } from "./viewer_gestures.js";

const KEYS = "The wheel or + and − zoom, dragging or arrow keys move, 0 fits, 1 shows 100 %.";
const MAX_SCALE = 40;
const HIT_DISTANCE = 6;
// Above this number of screen pixels per image pixel, pixels are shown as squares.
const MIN_SQUARE_PIXELS = 3;

export function viewer({ label }) {
  let image = null;
  // Three layers: the image, all shapes, and the highlighted shape.
  const layers = ["image", "shapes", "highlight"].map((name) => make("canvas", { class: name }));
  const [imageLayer, shapeLayer, highlightLayer] = layers;
  const switches = drawingSwitches(() => image !== null && redraw("shapes", "highlight"));
  const zoom = make("output.zoom");
  const keys = make("span.hint", { role: "status", hidden: "" }, KEYS);
  const stage = make("div.stage", { tabindex: "0", role: "group", "aria-label": label }, ...layers);
  const toolbar = make(
    "div.viewer-toolbar",
    { role: "group", "aria-label": "Zoom" },
    toolButton("−", "Zoom out", () => zoomBy(1 / ZOOM_STEP)),
    zoom,
    toolButton("+", "Zoom in", () => zoomBy(ZOOM_STEP)),
    toolButton("Fit", "Fit the image", fit),
    toolButton("1:1", "1:1, actual size", () => zoomTo(1)),
    toolButton("?", "Keys", () => (keys.hidden = !keys.hidden)),
    switches.element,
    keys,
  );
  const element = make("div.viewer", stage, toolbar);

  let levels = [];
  let shapes = [];
  let selected = null;
  // A map over the image, and its opacity.
  let overlaid = [null, 0];
  let guideLines = [];
  let transform = { scale: 1, x: 0, y: 0 };
  let [fitted, stale, scheduled] = [true, {}, false];
  const self = { element, show, shapes: setShapes, overlay, guides, choose, restore, fit, close };
  self.overlaid = () => overlaid;
  self.onhover = self.ontransform = self.onoverlay = () => {};

  function toolButton(sign, name, onclick) {
    const button = make("button", { type: "button", "aria-label": name, title: name }, sign);
    button.addEventListener("click", onclick);
    return button;
  }

  function redraw(...layers) {
    for (const layer of layers) stale[layer] = true;
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => {
      scheduled = false;
      if (stale.image) drawImageLayer();
      if (stale.shapes) drawShapes();
      if (stale.highlight) drawHighlight();
      stale = {};
    });
  }

  function cleared(canvas) {
    const context = canvas.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    const ratio = canvas.width / (stage.clientWidth || 1);
    const { scale, x, y } = transform;
    context.setTransform(scale * ratio, 0, 0, scale * ratio, x * ratio, y * ratio);
    return [context, ratio];
  }

  function drawImageLayer() {
    const [context, ratio] = cleared(imageLayer);
    if (image === null) return;
    const { width, height } = image;
    const needed = width * transform.scale * ratio;
    const level = levels.findLast((candidate) => candidate.width >= needed) ?? levels[0];
    context.imageSmoothingEnabled = transform.scale * ratio < MIN_SQUARE_PIXELS;
    if (level) context.drawImage(level, 0, 0, width, height);
    const [map, opacity] = overlaid;
    if (map !== null) {
      context.globalAlpha = opacity;
      context.imageSmoothingEnabled = true;
      context.drawImage(map, 0, 0, width, height);
      context.globalAlpha = 1;
    }
    // Dark beside light, so that lines are visible on every image.
    for (const [colour, shift] of [
      ["#000", 0],
      ["#fff", 1 / transform.scale],
    ]) {
      [context.strokeStyle, context.lineWidth] = [colour, 1 / transform.scale];
      for (const [x, y, w, h] of guideLines) context.strokeRect(x + shift, y + shift, w - 2 * shift, h - 2 * shift);
    }
  }

  function drawShapes() {
    const [context, ratio] = cleared(shapeLayer);
    if (image === null) return;
    const [left, top] = [-transform.x / transform.scale, -transform.y / transform.scale];
    const [right, bottom] = [left + stage.clientWidth / transform.scale, top + stage.clientHeight / transform.scale];
    const visible = shapes.filter(({ bounds: [l, t, r, b] }) => r >= left && l <= right && b >= top && t <= bottom);
    paint(context, visible, { scale: transform.scale * ratio, unit: ratio, width: image.width, all: shapes });
  }

  function drawHighlight() {
    const [context, ratio] = cleared(highlightLayer);
    const found = selected === null ? [] : shapes.filter((shape) => shape.index === selected);
    stage.classList.toggle("highlighting", found.length > 0);
    if (image !== null) {
      paint(context, found, { scale: transform.scale * ratio, unit: ratio, strong: true, width: image.width });
    }
  }

  // Halved copies of a large image, so that small views are fast and smooth.
  async function buildLevels(source) {
    let last = source.bitmap;
    while (last !== null && Math.max(last.width, last.height) > 1200) {
      const size = { resizeWidth: Math.ceil(last.width / 2), resizeHeight: Math.ceil(last.height / 2) };
      last = await createImageBitmap(last, { ...size, resizeQuality: "medium" });
      if (image !== source) {
        last.close();
        return;
      }
      levels.push(last);
    }
    redraw("image");
  }

  // Keep the first level: it belongs to the caller.
  function release() {
    for (const level of levels.slice(1)) level.close();
    [image, levels] = [null, []];
  }

  function show(next) {
    release();
    image = next;
    levels = next?.bitmap ? [next.bitmap] : [];
    [shapes, selected, overlaid] = [[], null, [null, 0]];
    switches.show(shapes);
    stage.style.setProperty("--ratio", next?.height ? next.width / next.height : "");
    fit();
    redraw("shapes", "highlight");
    if (next !== null) buildLevels(next);
  }

  function setShapes(next) {
    shapes = next;
    switches.show(shapes);
    redraw("shapes", "highlight");
  }

  function overlay(...next) {
    overlaid = next;
    redraw("image");
    self.onoverlay(...next);
  }

  // Lines around rectangles [left, top, width, height] in pixels of the image.
  function guides(rectangles) {
    if (!guideLines.length && !rectangles.length) return;
    guideLines = rectangles;
    redraw("image");
  }

  function choose(index) {
    if (index === selected) return;
    selected = index;
    redraw("highlight");
  }

  function move(next, notify = true) {
    transform = next;
    stage.classList.toggle("fitted", fitted);
    setText(zoom, `${Math.round(100 * transform.scale)} %`);
    redraw("image", "shapes", "highlight");
    if (notify) self.ontransform({ ...transform });
  }

  function restore(next) {
    fitted = false;
    move(next, false);
  }

  function fit() {
    fitted = true;
    const [width, height] = [stage.clientWidth, stage.clientHeight];
    if (image === null || !image.width || !width || !height) {
      move({ scale: 1, x: 0, y: 0 });
      return;
    }
    const scale = Math.min(width / image.width, height / image.height, MAX_SCALE);
    move({ scale, x: (width - image.width * scale) / 2, y: (height - image.height * scale) / 2 });
  }

  function zoomBy(factor, x = stage.clientWidth / 2, y = stage.clientHeight / 2) {
    zoomTo(transform.scale * factor, x, y);
  }

  function zoomTo(target, x = stage.clientWidth / 2, y = stage.clientHeight / 2) {
    if (image === null) return;
    fitted = false;
    const scale = Math.max(0.02, Math.min(MAX_SCALE, target));
    const factor = scale / transform.scale;
    move({ scale, x: x - (x - transform.x) * factor, y: y - (y - transform.y) * factor });
  }

  function shift(x, y) {
    if (image === null) return;
    fitted = false;
    move({ ...transform, x: transform.x + x, y: transform.y + y });
  }

  function point(x, y) {
    const { scale } = transform;
    const found = hit(shapes, (x - transform.x) / scale, (y - transform.y) / scale, HIT_DISTANCE / scale);
    hover(found?.index ?? null);
  }

  function hover(index) {
    if (index === selected) return;
    choose(index);
    self.onhover(index);
  }

  addGestures(stage, { isEmpty: () => image === null, point, leave: () => hover(null), zoomBy, zoomTo, shift, fit });

  const observer = new ResizeObserver(() => {
    const ratio = window.devicePixelRatio || 1;
    for (const canvas of [imageLayer, shapeLayer, highlightLayer]) {
      canvas.width = Math.round(stage.clientWidth * ratio);
      canvas.height = Math.round(stage.clientHeight * ratio);
    }
    if (fitted) fit();
    redraw("image", "shapes", "highlight");
  });
  observer.observe(stage);

  function close() {
    release();
    observer.disconnect();
    switches.close();
  }

  return self;
}
