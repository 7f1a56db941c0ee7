// SVG charts, and tables of figures. The SVG stretches to the available width, so text is HTML beside it.

import { make, makeSvg, setText } from "./dom.js";
import { trimmed } from "./format.js";

const WIDTH = 600;
const HEIGHT = 120;
const ROUND_STEPS = [1, 2, 2.5, 5, 10];

// The smallest round number that is at least `value`.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * ROUND_STEPS.find((step) => step * power >= value * (1 - 1e-9));
}

// The same for bytes, with units of 1024.
export function roundBytes(value) {
  const unit = value < 2 ** 30 ? 2 ** 20 : 2 ** 30;
  return unit * roundUp(value / unit);
}

// Runs of known values, as lists of [index, value].
function runs(values) {
  const result = [];
  let run = [];
  values.forEach((value, index) => {
    if (value !== null) run.push([index, value]);
    else if (run.length) result.push(run.splice(0));
  });
  if (run.length) result.push(run);
  return result;
}

// Paths through values between 0 and `top`. Every run fills the full width of its intervals, so that a single value is
// visible.
function paths(values, top, width = WIDTH, height = HEIGHT) {
  const part = width / values.length;
  const x = (index) => (index * part).toFixed(1);
  const y = (value) => (height - (height * value) / top).toFixed(1);
  return runs(values).map((run) => {
    const [first, last] = [run[0], run.at(-1)];
    const through = run.map(([index, value]) => `L${x(index + 0.5)} ${y(value)}`).join("");
    const line = `M${x(first[0])} ${y(first[1])}${through}H${x(last[0] + 1)}`;
    return { line, area: `${line}V${height}H${x(first[0])}Z` };
  });
}

function joinPaths(segments, kind) {
  return segments.map((path) => path[kind]).join("");
}

export function sparkline() {
  const path = makeSvg("path", { class: "line tone-1" });
  const element = makeSvg(
    "svg",
    { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" },
    path,
  );
  return {
    element,
    show(values) {
      const top = Math.max(...values.map((value) => value ?? 0), 1e-9);
      path.setAttribute("d", joinPaths(paths(values, top, 100, 22), "line"));
    },
  };
}

// `lines` has the label of each line by its name. The legend shows the current values, or those under the pointer.
export function trendChart({ title, lines = { value: "" }, format, min = 0, round = roundUp }) {
  const svg = makeSvg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  for (const y of [0, HEIGHT / 2, HEIGHT]) {
    svg.append(makeSvg("line", { class: "grid", x1: 0, x2: WIDTH, y1: y, y2: y }));
  }
  const fill = makeSvg("path", { class: "area tone-1" });
  const cursor = makeSvg("line", { class: "cursor", y1: 0, y2: HEIGHT, visibility: "hidden" });
  svg.append(fill, cursor);
  const isSingle = Object.keys(lines).length === 1;
  const chartLines = Object.entries(lines).map(([name, label], index) => {
    const path = makeSvg("path", { class: `line tone-${index + 1}` });
    svg.append(path);
    const value = make("span.value");
    const key = make("span", { class: `key tone-${index + 1}` });
    const entry = make("span.entry", ...(isSingle ? [] : [key, `${label} `]), value);
    return { name, label, path, value, entry };
  });
  const high = make("span.axis-max");
  const axisStart = make("span.axis-start");
  const axisEnd = make("span.axis-end");
  const element = make(
    "figure.chart",
    make("figcaption", make("h3", title), make("span.legend", ...chartLines.map((line) => line.entry))),
    make("div.plot", svg, high),
    make("div.axis", { "aria-hidden": "true" }, axisStart, axisEnd),
  );
  let last = null;
  let pointerShare = null;

  function show(series, interval, over) {
    last = { series, interval, over };
    const knownValues = Object.values(series)
      .flat()
      .filter((value) => value !== null);
    const top = round(Math.max(...knownValues, min, 1e-6));
    setText(high, knownValues.length ? trimmed(format(top)) : "no data");
    const size = series[chartLines[0].name].length;
    for (const line of chartLines) {
      const segments = paths(series[line.name], top);
      line.path.setAttribute("d", joinPaths(segments, "line"));
      if (isSingle) fill.setAttribute("d", joinPaths(segments, "area"));
    }
    const index = pointerShare === null ? size - 1 : Math.min(Math.floor(pointerShare * size), size - 1);
    for (const line of chartLines) setText(line.value, format(series[line.name][index]));
    const units = { 1: "s", 60: "min", 3600: "h", windows: size === 1 ? "window" : "windows" };
    setText(axisStart, `−${size} ${units[interval]}`);
    setText(axisEnd, index === size - 1 ? "now" : `−${size - 1 - index} ${units[interval]}`);
    cursor.setAttribute("visibility", pointerShare === null ? "hidden" : "visible");
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, ((index + 0.5) * WIDTH) / size);
    svg.setAttribute("aria-label", describe(series, over));
  }

  function describe(series, over) {
    const descriptions = chartLines.flatMap(({ name, label }) => {
      const knownValues = series[name].filter((value) => value !== null);
      if (!knownValues.length) return [];
      const [now, low, high] = [series[name].at(-1), Math.min(...knownValues), Math.max(...knownValues)].map(format);
      return [`${`${title} ${label}`.trim()}, ${over}: ${now} now, between ${low} and ${high}`];
    });
    return descriptions.join("; ") || `${title}, ${over}: no data`;
  }

  function movePointer(event) {
    const box = svg.getBoundingClientRect();
    pointerShare = event === null ? null : Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    if (last !== null) show(last.series, last.interval, last.over);
  }

  svg.addEventListener("pointermove", movePointer);
  svg.addEventListener("pointerleave", () => movePointer(null));
  return { element, show };
}

// A table of names and figures. It keeps its rows while the names stay the same.
export function figureTable(title, noFigures) {
  const body = make("tbody");
  const table = make("table.text-table.figures-table", { "aria-label": title }, body);
  const none = make("p.hint", noFigures);
  let names = "";
  return {
    element: make("div", make("h3", title), table, none),
    show(pairs) {
      none.hidden = pairs.length > 0;
      const newNames = pairs.map(([name]) => name).join();
      if (newNames !== names) {
        names = newNames;
        body.replaceChildren(...pairs.map(([name]) => make("tr", make("th", { scope: "row" }, name), make("td"))));
      }
      pairs.forEach(([, figure], index) => setText(body.rows[index].cells[1], figure));
    },
  };
}
