// SVG charts. The SVG stretches to the available width, so text is HTML beside it.

import { draw, make, say } from "./dom.js";
import { trimmed } from "./format.js";
import { text } from "./text.js";

const WIDTH = 600;
const HEIGHT = 120;
const STEPS = [1, 2, 2.5, 5, 10];
const NICE = [1, 2, 5];

// The smallest round number that is at least `value`.
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * STEPS.find((step) => step * power >= value * (1 - 1e-9));
}

// The same for bytes, with units of 1024.
export function roundBytes(value) {
  const unit = value < 2 ** 30 ? 2 ** 20 : 2 ** 30;
  return unit * ceiling(value / unit);
}

// Runs of known values, as lists of [index, value].
function runs(values) {
  const found = [];
  let run = [];
  values.forEach((value, place) => {
    if (value !== null) run.push([place, value]);
    else if (run.length) found.push(run.splice(0));
  });
  if (run.length) found.push(run);
  return found;
}

// Paths through values between 0 and `top`. Every run fills the full width of its intervals, so that a single value is
// visible.
function paths(values, top, width = WIDTH, height = HEIGHT) {
  const part = width / values.length;
  const x = (place) => (place * part).toFixed(1);
  const y = (value) => (height - (height * value) / top).toFixed(1);
  return runs(values).map((run) => {
    const [first, last] = [run[0], run.at(-1)];
    const through = run.map(([place, value]) => `L${x(place + 0.5)} ${y(value)}`).join("");
    const line = `M${x(first[0])} ${y(first[1])}${through}H${x(last[0] + 1)}`;
    return { line, area: `${line}V${height}H${x(first[0])}Z` };
  });
}

function joined(found, kind) {
  return found.map((path) => path[kind]).join("");
}

function canvas() {
  return draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
}

function grid(svg) {
  for (const share of [0, 0.5, 1]) {
    const y = HEIGHT * share;
    svg.append(draw("line", { class: "grid", x1: 0, x2: WIDTH, y1: y, y2: y }));
  }
}

export function sparkline() {
  const path = draw("path", { class: "line tone-1" });
  const element = draw(
    "svg",
    { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" },
    path,
  );
  return {
    element,
    show(values) {
      const top = Math.max(...values.map((value) => value ?? 0), 1e-9);
      path.setAttribute("d", joined(paths(values, top, 100, 22), "line"));
    },
  };
}

// The legend shows the current values, or those under the pointer.
export function trendChart({ title, lines, format, least = 0, round = ceiling }) {
  const svg = canvas();
  grid(svg);
  const fill = draw("path", { class: "area tone-1" });
  const cursor = draw("line", { class: "cursor", y1: 0, y2: HEIGHT, visibility: "hidden" });
  svg.append(fill, cursor);
  const drawn = lines.map((name, index) => {
    const path = draw("path", { class: `line tone-${index + 1}` });
    svg.append(path);
    const value = make("span", { class: "value" });
    const label = text.metrics.lines[name];
    const key = make("span", { class: `key tone-${index + 1}` });
    const entry = make("span", { class: "entry" }, ...(lines.length > 1 ? [key, `${label} `] : []), value);
    return { name, label, path, value, entry };
  });
  const high = make("span", { class: "high" });
  const then = make("span", { class: "then" });
  const when = make("span", { class: "when" });
  const element = make(
    "figure",
    { class: "chart" },
    make(
      "figcaption",
      {},
      make("h3", {}, title),
      make("span", { class: "legend" }, ...drawn.map((line) => line.entry)),
    ),
    make("div", { class: "plot" }, svg, high),
    make("div", { class: "axis", "aria-hidden": "true" }, then, when),
  );
  let last = null;
  let pointed = null;

  function show(series, interval, over) {
    last = { series, interval, over };
    const known = Object.values(series).flat().filter((value) => value !== null);
    const top = round(Math.max(...known, least, 1e-6));
    say(high, known.length ? trimmed(format(top)) : text.metrics.unknown);
    const size = series[lines[0]].length;
    for (const line of drawn) {
      const found = paths(series[line.name], top);
      line.path.setAttribute("d", joined(found, "line"));
      if (lines.length === 1) fill.setAttribute("d", joined(found, "area"));
    }
    const place = pointed === null ? size - 1 : Math.min(Math.floor(pointed * size), size - 1);
    for (const line of drawn) say(line.value, format(series[line.name][place]));
    const units = { 1: "s", 60: "min", 3600: "h", windows: size === 1 ? "window" : "windows" };
    say(then, `−${size} ${units[interval]}`);
    say(when, place === size - 1 ? text.metrics.now : `−${size - 1 - place} ${units[interval]}`);
    cursor.setAttribute("visibility", pointed === null ? "hidden" : "visible");
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, ((place + 0.5) * WIDTH) / size);
    svg.setAttribute("aria-label", described(series, over));
  }

  function described(series, over) {
    const said = drawn.flatMap(({ name, label }) => {
      const known = series[name].filter((value) => value !== null);
      if (!known.length) return [];
      const [now, low, most] = [series[name].at(-1), Math.min(...known), Math.max(...known)].map(format);
      return [text.metrics.trendLabel(`${title} ${label}`.trim(), over, now, low, most)];
    });
    return said.join("; ") || text.metrics.emptyLabel(title, over);
  }

  function point(event) {
    const box = svg.getBoundingClientRect();
    pointed = event === null ? null : Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    if (last !== null) show(last.series, last.interval, last.over);
  }

  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerleave", () => point(null));
  return { element, show };
}

// The cumulative share of requests by latency, on a logarithmic axis.
export function distributionChart({ title, format }) {
  const svg = canvas();
  grid(svg);
  const fill = draw("path", { class: "area tone-1" });
  const path = draw("path", { class: "line tone-1" });
  svg.append(fill, path);
  const axis = make("div", { class: "axis ticks", "aria-hidden": "true" });
  const element = make(
    "figure",
    { class: "chart" },
    make("figcaption", {}, make("h3", {}, title)),
    make(
      "div",
      { class: "plot" },
      svg,
      make("span", { class: "high" }, "100 %"),
      make("span", { class: "middle" }, "50 %"),
    ),
    axis,
  );

  function show(points, label) {
    svg.setAttribute("aria-label", label);
    axis.replaceChildren();
    path.setAttribute("d", "");
    fill.setAttribute("d", "");
    if (!points.length) {
      axis.append(make("span", {}, text.metrics.unknown));
      return;
    }
    const low = Math.log10(points[0][0] / 1.25);
    const high = Math.log10(points.at(-1)[0] * 1.25);
    const x = (value) => (Math.log10(value) - low) / (high - low);
    let steps = `M0 ${HEIGHT}`;
    for (const [value, share] of points) steps += `H${(x(value) * WIDTH).toFixed(1)}V${(HEIGHT * (1 - share)).toFixed(1)}`;
    steps += `H${WIDTH}`;
    path.setAttribute("d", steps);
    fill.setAttribute("d", `${steps}V${HEIGHT}Z`);
    for (const value of ticks(low, high)) {
      const tick = make("span", {}, trimmed(format(value)));
      tick.style.left = `${(100 * x(value)).toFixed(2)}%`;
      axis.append(tick);
    }
  }

  return { element, show };
}

// Round numbers between two powers of ten: 1, 2 and 5 of each power, or only 1 if space is short.
function ticks(low, high) {
  const found = [];
  for (let power = Math.floor(low); power <= high; power += 1) {
    for (const step of high - low > 1.6 ? [1] : NICE) {
      const value = step * 10 ** power;
      const place = (Math.log10(value) - low) / (high - low);
      if (place > 0.04 && place < 0.96) found.push(value);
    }
  }
  return found;
}
