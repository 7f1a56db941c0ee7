// An image with shapes, with zoom, pan and pointing.

import { make, say } from "./dom.js";
import { hit, paint } from "./drawing.js";
import { text } from "./text.js";

const words = text.viewer;
const CLOSEST = 40;
const STEP = 1.25;
const FARTHEST_MOVE = 40;
const NEAR = 6;
// Above this number of screen pixels per image pixel, pixels are shown as squares.
const SQUARES = 3;
// With more points than this, move the painted shapes during a gesture, and repaint when it stops.
const HEAVY = 3000;
const REST = 100;

export function viewer({ label }) {
  // Three layers: the image, all shapes, and the highlighted shape.
  const [ground, over, top] = ["ground", "over", "top"].map((name) => make("canvas", { class: name }));
  const zoom = make("output", { class: "zoom" });
  const keys = make("span", { class: "hint" }, words.keys);
  const stage = make("div", { class: "stage", tabindex: "0", role: "group", "aria-label": label }, ground, over, top);
  const tools = make(
    "div",
    { class: "viewer-tools", role: "group", "aria-label": words.zoom },
    tool("−", words.out, () => zoomBy(1 / STEP)),
    zoom,
    tool("+", words.in, () => zoomBy(STEP)),
    tool(words.fitShort, words.fit, fit),
    tool("1:1", words.whole, () => zoomTo(1)),
    keys,
  );
  const element = make("div", { class: "viewer" }, stage, tools);

  let picture = null;
  let levels = [];
  let shapes = [];
  let chosen = null;
  let haze = { bitmap: null, opacity: 0 };
  let place = { scale: 1, x: 0, y: 0 };
  let [fitted, dirty, waiting] = [true, {}, false];
  let [heavy, painted, resting] = [false, place, 0];
  const pointers = new Map();
  let pinch = 0;
  const self = { element, show, shapes: setShapes, overlay, choose, place: () => ({ ...place }), restore, fit, close };
  self.onhover = () => {};
  self.onplace = () => {};

  function tool(sign, name, act) {
    const button = make("button", { type: "button", "aria-label": name, title: name }, sign);
    button.addEventListener("click", act);
    return button;
  }

  function redraw(...parts) {
    for (const part of parts) dirty[part] = true;
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      if (dirty.ground) drawGround();
      if (dirty.over) drawOver();
      else if (dirty.moved) carryOver();
      if (dirty.top || dirty.moved) drawTop();
      dirty = {};
    });
  }

  function cleared(canvas) {
    const context = canvas.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    const ratio = canvas.width / (stage.clientWidth || 1);
    context.setTransform(place.scale * ratio, 0, 0, place.scale * ratio, place.x * ratio, place.y * ratio);
    return [context, ratio];
  }

  function drawGround() {
    const [context, ratio] = cleared(ground);
    if (picture === null) return;
    const { width, height } = picture;
    const needed = width * place.scale * ratio;
    const level = levels.findLast((candidate) => candidate.width >= needed) ?? levels[0];
    context.imageSmoothingEnabled = place.scale * ratio < SQUARES;
    if (level) context.drawImage(level, 0, 0, width, height);
    if (haze.bitmap !== null) {
      context.globalAlpha = haze.opacity;
      context.imageSmoothingEnabled = true;
      context.drawImage(haze.bitmap, 0, 0, width, height);
      context.globalAlpha = 1;
    }
  }

  function drawOver() {
    clearTimeout(resting);
    const [context, ratio] = cleared(over);
    over.style.transform = "";
    painted = place;
    if (picture === null) return;
    const [left, above] = [-place.x / place.scale, -place.y / place.scale];
    const [right, below] = [left + stage.clientWidth / place.scale, above + stage.clientHeight / place.scale];
    const near = shapes.filter(({ bounds: [l, t, r, b] }) => r >= left && l <= right && b >= above && t <= below);
    paint(context, near, { scale: place.scale * ratio, unit: ratio, width: picture.width });
  }

  function carryOver() {
    if (!heavy) {
      drawOver();
      return;
    }
    const grown = place.scale / painted.scale;
    const [x, y] = [place.x - painted.x * grown, place.y - painted.y * grown];
    over.style.transform = `translate(${x}px, ${y}px) scale(${grown})`;
    clearTimeout(resting);
    resting = setTimeout(() => redraw("over"), REST);
  }

  function drawTop() {
    const [context, ratio] = cleared(top);
    const found = chosen === null ? [] : shapes.filter((shape) => shape.index === chosen);
    stage.classList.toggle("choosing", found.length > 0);
    if (picture !== null) {
      paint(context, found, { scale: place.scale * ratio, unit: ratio, strong: true, width: picture.width });
    }
  }

  // Halved copies of a large image, so that small views are fast and smooth.
  async function halve(of) {
    let last = of.bitmap;
    while (last !== null && Math.max(last.width, last.height) > 1200) {
      const size = { resizeWidth: Math.ceil(last.width / 2), resizeHeight: Math.ceil(last.height / 2) };
      last = await createImageBitmap(last, { ...size, resizeQuality: "medium" });
      if (picture !== of) {
        last.close();
        return;
      }
      levels.push(last);
    }
    redraw("ground");
  }

  // Keep the first level: it belongs to the caller.
  function forget() {
    for (const level of levels.slice(1)) level.close();
    [picture, levels] = [null, []];
  }

  function show(next) {
    forget();
    picture = next;
    levels = next?.bitmap ? [next.bitmap] : [];
    [shapes, chosen, haze] = [[], null, { bitmap: null, opacity: 0 }];
    stage.style.setProperty("--ratio", next?.height ? next.width / next.height : "");
    fit();
    redraw("over", "top");
    if (next !== null) halve(next);
  }

  function setShapes(next) {
    shapes = next;
    heavy = shapes.reduce((sum, { rings }) => sum + rings.reduce((all, ring) => all + ring.length, 10), 0) > HEAVY;
    redraw("over", "top");
  }

  function overlay(bitmap, opacity) {
    haze = { bitmap, opacity };
    redraw("ground");
  }

  function choose(index) {
    if (index === chosen) return;
    chosen = index;
    redraw("top");
  }

  function move(next, told = true) {
    place = next;
    stage.classList.toggle("fitted", fitted);
    say(zoom, `${Math.round(100 * place.scale)} %`);
    redraw("ground", "moved");
    if (told) self.onplace({ ...place });
  }

  function restore(next) {
    fitted = false;
    move(next, false);
  }

  function fit() {
    fitted = true;
    const [width, height] = [stage.clientWidth, stage.clientHeight];
    if (picture === null || !picture.width || !width || !height) {
      move({ scale: 1, x: 0, y: 0 });
      return;
    }
    const scale = Math.min(width / picture.width, height / picture.height, CLOSEST);
    move({ scale, x: (width - picture.width * scale) / 2, y: (height - picture.height * scale) / 2 });
  }

  function zoomBy(factor, x = stage.clientWidth / 2, y = stage.clientHeight / 2) {
    zoomTo(place.scale * factor, x, y);
  }

  function zoomTo(wanted, x = stage.clientWidth / 2, y = stage.clientHeight / 2) {
    if (picture === null) return;
    fitted = false;
    const scale = Math.max(0.02, Math.min(CLOSEST, wanted));
    const grown = scale / place.scale;
    move({ scale, x: x - (x - place.x) * grown, y: y - (y - place.y) * grown });
  }

  function shift(x, y) {
    if (picture === null) return;
    fitted = false;
    move({ ...place, x: place.x + x, y: place.y + y });
  }

  function at(event) {
    const box = stage.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  function point(event) {
    const [x, y] = at(event);
    const found = hit(shapes, (x - place.x) / place.scale, (y - place.y) / place.scale, NEAR / place.scale);
    tell(found?.index ?? null);
  }

  function tell(index) {
    if (index === chosen) return;
    choose(index);
    self.onhover(index);
  }

  stage.addEventListener(
    "wheel",
    (event) => {
      if (picture === null) return;
      event.preventDefault();
      zoomBy(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), ...at(event));
    },
    { passive: false },
  );
  stage.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    stage.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, [event.clientX, event.clientY]);
    pinch = 0;
  });
  stage.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (before === undefined) {
      point(event);
      return;
    }
    pointers.set(event.pointerId, [event.clientX, event.clientY]);
    if (pointers.size === 1) shift(event.clientX - before[0], event.clientY - before[1]);
    if (pointers.size !== 2) return;
    const [[ax, ay], [bx, by]] = pointers.values();
    const apart = Math.hypot(ax - bx, ay - by);
    if (pinch > 0) zoomBy(apart / pinch, ...at({ clientX: (ax + bx) / 2, clientY: (ay + by) / 2 }));
    pinch = apart;
  });
  for (const end of ["pointerup", "pointercancel"]) {
    stage.addEventListener(end, (event) => {
      pointers.delete(event.pointerId);
      pinch = 0;
      if (event.type === "pointerup" && event.pointerType === "touch") point(event);
    });
  }
  stage.addEventListener("pointerleave", () => tell(null));
  stage.addEventListener("dblclick", fit);
  stage.addEventListener("keydown", (event) => {
    const act = {
      "+": () => zoomBy(STEP),
      "=": () => zoomBy(STEP),
      "-": () => zoomBy(1 / STEP),
      0: fit,
      1: () => zoomTo(1),
      ArrowLeft: () => shift(FARTHEST_MOVE, 0),
      ArrowRight: () => shift(-FARTHEST_MOVE, 0),
      ArrowUp: () => shift(0, FARTHEST_MOVE),
      ArrowDown: () => shift(0, -FARTHEST_MOVE),
      Escape: () => tell(null),
    }[event.key];
    if (act === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });

  const observer = new ResizeObserver(() => {
    const ratio = window.devicePixelRatio || 1;
    for (const canvas of [ground, over, top]) {
      canvas.width = Math.round(stage.clientWidth * ratio);
      canvas.height = Math.round(stage.clientHeight * ratio);
    }
    if (fitted) fit();
    redraw("ground", "over", "top");
  });
  observer.observe(stage);

  function close() {
    forget();
    clearTimeout(resting);
    observer.disconnect();
  }

  return self;
}
