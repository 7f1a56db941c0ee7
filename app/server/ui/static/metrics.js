// The Metrics view: all requests, every model, and charts of the selected model.

import { distributionChart, roundBytes, sparkline, trendChart } from "./charts.js";
import { make, setText } from "./dom.js";
import { curlExample } from "./curl_example.js";
import { figureTable } from "./figure_table.js";
import { subscribe } from "./snapshots.js";
import { aligned, bytes, cores, count, milliseconds, percent, rate } from "./format.js";
import { text } from "./text.js";

const strings = text.metrics;
const ID = "metrics";
const WINDOWS = Object.keys(strings.windows);
const COLUMNS = ["rate", "requests", "errors", "mean", "p50", "p90", "p99", "p999", "batch"];

export const metrics = { id: ID, title: strings.title, open };

function open(main, tools) {
  const selected = { window: WINDOWS[0], model: "" };
  const navigate = (changes) => {
    const { window, model } = { ...selected, ...changes };
    tools.go(ID, model ? { window, model } : { window });
  };
  const sections = [
    toolbar((window) => navigate({ window })),
    readinessNotice(),
    tiles(),
    firstRequest(tools),
    models((model) => {
      navigate({ model: model === selected.model ? "" : model });
      detail.reveal();
    }),
  ];
  const detail = details();
  sections.push(detail, processCharts());
  main.append(...sections.map((section) => section.element));
  let close = () => {};

  function show(snapshot) {
    // Skip a late snapshot of the previous window.
    if (snapshot.window !== selected.window) return;
    const over = strings.windowNames[snapshot.window];
    for (const section of sections) section.show(snapshot, over);
    tools.about(text.up(snapshot.version, snapshot.age));
  }

  return {
    change(parameters) {
      close();
      selected.window = WINDOWS.includes(parameters.get("window")) ? parameters.get("window") : WINDOWS[0];
      selected.model = parameters.get("model") ?? "";
      sections[0].choose(selected.window);
      const url = new URL("page/events", tools.root);
      url.search = new URLSearchParams(selected);
      close = subscribe(url, show, tools.state);
    },
    close() {
      close();
    },
  };
}

function toolbar(choose) {
  const buttons = new Map();
  for (const window of WINDOWS) {
    const button = make("button", { type: "button" }, strings.windows[window]);
    button.addEventListener("click", () => choose(window));
    buttons.set(window, button);
  }
  const attributes = { class: "button-group", role: "group", "aria-label": strings.window };
  const group = make("div", attributes, ...buttons.values());
  return {
    element: make("div", { class: "toolbar" }, make("h1", {}, strings.title), group),
    choose(selected) {
      for (const [window, button] of buttons) button.setAttribute("aria-pressed", window === selected);
    },
    show() {},
  };
}

// Why load balancers see this server as not ready.
function readinessNotice() {
  const reason = make("p");
  const element = make("section", { class: "panel notice", hidden: "" }, make("h2", {}, strings.notReady), reason);
  return {
    element,
    show({ unready }) {
      element.hidden = !unready;
      setText(reason, unready);
    },
  };
}

function tiles() {
  const setters = {};
  const list = make("dl", { class: "tiles" });
  for (const [key, label] of Object.entries(strings.tiles)) {
    const [value, hint] = [make("dd", { class: "figure" }), make("dd", { class: "hint" })];
    setters[key] = (figure, about) => {
      setText(value, figure);
      setText(hint, about);
    };
    list.append(make("div", { "data-tile": key }, make("dt", {}, label), value, hint));
  }
  return {
    element: make("section", { "aria-label": strings.summary }, list),
    show({ total, now, window, machine_memory: machine }) {
      setters.rate(`${rate(total.rate)}/s`, strings.requests(total.requests, strings.windows[window]));
      setters.median(milliseconds(total.percentiles[0]), strings.mean(milliseconds(total.mean)));
      setters.p99(milliseconds(total.percentiles[4]), strings.slowest(milliseconds(total.slowest)));
      setters.errors(percent(errorPercent(total)), strings.failed(total.failures, total.requests));
      setters.flight(count(now.in_flight), strings.flightHint);
      setters.waiting(count(now.waiting), strings.waitingHint);
      setters.cpu(cores(now.cpu), strings.cpuHint);
      setters.memory(bytes(now.memory), strings.memoryHint(bytes(machine)));
    },
  };
}

function firstRequest(tools) {
  const command = curlExample(tools.root);
  const element = make("section", { class: "panel empty", hidden: "" }, make("h2", {}, strings.empty), command.element);
  return {
    element,
    show({ ever, models: known }) {
      element.hidden = ever > 0;
      if (!element.hidden) command.show(known);
    },
  };
}

function models(choose) {
  const body = make("tbody");
  const headings = ["model", "trend", ...COLUMNS].map((key) =>
    make("th", { scope: "col", class: `col-${key}` }, strings.columns[key]),
  );
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...headings)), body);
  const rows = new Map();

  function createRow(name) {
    const button = make("button", { type: "button", "aria-controls": "detail" }, name || strings.allModels);
    const note = make("span", { class: "note" });
    const trend = sparkline();
    const cells = Object.fromEntries(COLUMNS.map((key) => [key, make("td", { class: `col-${key}` })]));
    const element = make(
      "tr",
      name ? {} : { class: "total" },
      make("th", { scope: "row", class: "col-model" }, button, note),
      make("td", { class: "col-trend" }, trend.element),
      ...Object.values(cells),
    );
    element.addEventListener("click", () => choose(name));
    return { element, button, note, trend, cells };
  }

  function fill({ element, button, note, trend, cells }, summary, selected) {
    const [p50, , p90, , p99, p999] = summary.percentiles.map(milliseconds);
    const figures = {
      rate: aligned(summary.rate),
      requests: count(summary.requests),
      errors: percent(errorPercent(summary)),
      mean: milliseconds(summary.mean),
      p50,
      p90,
      p99,
      p999,
      batch: aligned(summary.batch),
    };
    for (const key of COLUMNS) setText(cells[key], figures[key]);
    cells.errors.classList.toggle("bad", summary.failures > 0);
    setText(note, strings.states[summary.state] ?? "");
    trend.show(summary.trend);
    button.setAttribute("aria-expanded", summary.name === selected);
    element.classList.toggle("selected", summary.name === selected);
  }

  return {
    element: make(
      "section",
      { class: "panel models", "aria-label": strings.models },
      make("h2", {}, strings.models),
      table,
    ),
    show({ total, models: known, detail }) {
      const summaries = [total, ...known];
      for (const name of rows.keys()) {
        if (summaries.some((summary) => summary.name === name)) continue;
        rows.get(name).element.remove();
        rows.delete(name);
      }
      summaries.forEach((summary, index) => {
        if (!rows.has(summary.name)) {
          rows.set(summary.name, createRow(summary.name));
          body.insertBefore(rows.get(summary.name).element, body.children[index] ?? null);
        }
        fill(rows.get(summary.name), summary, detail.name);
      });
    },
  };
}

function details() {
  const title = make("h2", { id: "detail-title" });
  const charts = {
    rate: trendChart({ title: strings.charts.rate, lines: ["value"], format: rate, min: 1 }),
    latency: trendChart({ title: strings.charts.latency, lines: ["p50", "p90", "p99"], format: milliseconds }),
    errors: trendChart({ title: strings.charts.errors, lines: ["value"], format: percent, min: 1 }),
    batch: trendChart({ title: strings.charts.batch, lines: ["value"], format: rate, min: 1 }),
  };
  const distribution = distributionChart({ title: strings.charts.cdf, format: milliseconds });
  const percentiles = figureTable(strings.percentiles, "");
  const batches = figureTable(strings.batches, strings.batchesNone);
  const element = make(
    "section",
    { class: "panel", id: "detail", "aria-labelledby": "detail-title" },
    title,
    make(
      "div",
      { class: "charts" },
      ...Object.values(charts).map((chart) => chart.element),
      distribution.element,
      make("div", { class: "lists" }, percentiles.element, batches.element),
    ),
  );
  return {
    element,
    reveal() {
      if (element.getBoundingClientRect().top < window.innerHeight * 0.7) return;
      const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)").matches;
      element.scrollIntoView({ behavior: reducedMotion ? "auto" : "smooth", block: "start" });
    },
    show({ total, models: known, detail, interval, percentiles: ranks }, over) {
      const summary = known.find((model) => model.name === detail.name) ?? total;
      setText(title, detail.name || strings.allModels);
      charts.rate.show({ value: summary.trend }, interval, over);
      charts.latency.show({ p50: detail.p50, p90: detail.p90, p99: detail.p99 }, interval, over);
      charts.errors.show({ value: detail.errors }, interval, over);
      charts.batch.show({ value: detail.batch }, interval, over);
      const [median, p99] = [summary.percentiles[0], summary.percentiles[4]].map(milliseconds);
      const label = detail.cdf.length ? strings.cdfLabel(median, p99) : strings.emptyLabel(strings.charts.cdf, over);
      distribution.show(detail.cdf, label);
      percentiles.show([
        [strings.meanRow, milliseconds(summary.mean)],
        ...ranks.map((rank, index) => [strings.percentile(rank), milliseconds(summary.percentiles[index])]),
        [strings.slowestRow, milliseconds(summary.slowest)],
      ]);
      batches.show(detail.batches.map(([size, number]) => [size, count(number)]));
    },
  };
}

function processCharts() {
  const charts = {
    flight: trendChart({ title: strings.charts.flight, lines: ["in_flight", "waiting"], format: rate, min: 1 }),
    cpu: trendChart({ title: strings.charts.cpu, lines: ["value"], format: cores, min: 1 }),
    memory: trendChart({ title: strings.charts.memory, lines: ["value"], format: bytes, round: roundBytes }),
  };
  return {
    element: make(
      "section",
      { class: "panel", "aria-label": strings.process },
      make("h2", {}, strings.process),
      make("div", { class: "charts" }, ...Object.values(charts).map((chart) => chart.element)),
    ),
    show({ process, interval }, over) {
      charts.flight.show({ in_flight: process.in_flight, waiting: process.waiting }, interval, over);
      charts.cpu.show({ value: process.cpu }, interval, over);
      charts.memory.show({ value: process.memory }, interval, over);
    },
  };
}

function errorPercent({ failures, requests }) {
  return requests ? (100 * failures) / requests : null;
}
