// The Metrics view: all requests, every model, and charts of the selected model.

import { figureTable, roundBytes, sparkline, trendChart } from "./charts.js";
import { subscribe } from "./connection.js";
import { make, setText, switcher, tableHead } from "./dom.js";
import { bytes, cores, count, duration, milliseconds, percent, rate } from "./format.js";
import { STATES } from "./model_details.js";

const WINDOWS = { "60s": "60 s", "60m": "60 min", "24h": "24 h" };
const WINDOW_NAMES = { "60s": "last 60 seconds", "60m": "last 60 minutes", "24h": "last 24 hours" };
const TILES = {
  rate: "Requests",
  median: "Latency p50",
  p99: "Latency p99",
  errors: "Errors",
  flight: "In flight",
  waiting: "Waiting",
  cpu: "CPU",
  memory: "Memory",
};
const FIGURES = {
  rate: "Req/s",
  requests: "Requests",
  errors: "Errors",
  mean: "Mean",
  p50: "p50",
  p90: "p90",
  p99: "p99",
  p999: "p99.9",
  batch: "Batch",
};

export function open(main, tools) {
  const selected = { window: "60s", model: "" };
  const navigate = (changes) => {
    const { window, model } = { ...selected, ...changes };
    tools.go("metrics", model ? { window, model } : { window });
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
    const over = WINDOW_NAMES[snapshot.window];
    for (const section of sections) section.show(snapshot, over);
  }

  return {
    change(parameters) {
      close();
      selected.window = parameters.get("window") in WINDOWS ? parameters.get("window") : "60s";
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

function toolbar(onchoose) {
  const { element, choose } = switcher("Window", Object.entries(WINDOWS), onchoose);
  const about = make("span.hint");
  return {
    element: make("div.toolbar", make("h1", "Metrics"), about, element),
    choose,
    show: ({ version, age }) => setText(about, `Version ${version}, up ${duration(age)}`),
  };
}

// Why load balancers see this server as not ready.
function readinessNotice() {
  const reason = make("p");
  const title = make("h2", "Not ready: load balancers send no requests to this server");
  const element = make("section.panel.notice", { hidden: "" }, title, reason);
  return {
    element,
    show({ not_ready_reason }) {
      element.hidden = !not_ready_reason;
      setText(reason, not_ready_reason);
    },
  };
}

function tiles() {
  const setters = {};
  const list = make("dl.tiles");
  for (const [key, label] of Object.entries(TILES)) {
    const [value, hint] = [make("dd.figure"), make("dd.hint")];
    setters[key] = (figure, about) => {
      setText(value, figure);
      setText(hint, about);
    };
    list.append(make("div", { "data-tile": key }, make("dt", label), value, hint));
  }
  return {
    element: make("section", { "aria-label": "All requests" }, list),
    show({ total, now, window, machine_memory: machine }) {
      setters.rate(`${rate(total.rate)}/s`, `${count(total.requests)} in ${WINDOWS[window]}`);
      setters.median(milliseconds(total.percentiles[0]), `mean ${milliseconds(total.mean)}`);
      setters.p99(milliseconds(total.percentiles[4]), `slowest ${milliseconds(total.slowest)}`);
      setters.errors(percent(errorPercent(total)), `${count(total.failures)} of ${count(total.requests)}`);
      setters.flight(count(now.in_flight), "including waiting");
      setters.waiting(count(now.waiting), "for a free worker");
      setters.cpu(cores(now.cpu), "100 % is one core");
      setters.memory(bytes(now.memory), `of ${bytes(machine)}`);
    },
  };
}

function firstRequest(tools) {
  const link = tools.has("request")
    ? make("a", { href: "#request" }, "Use in code shows how to send the first one.")
    : make("a", { href: new URL("docs", tools.root) }, "The API shows how to send the first one.");
  const element = make("section.panel", { hidden: "" }, make("h2", "No requests yet"), link);
  return {
    element,
    show({ total_requests }) {
      element.hidden = total_requests > 0;
    },
  };
}

function models(choose) {
  const body = make("tbody");
  const table = make("table", tableHead({ model: "Model", trend: "Trend", ...FIGURES }), body);
  const rows = new Map();

  function createRow(name) {
    const button = make("button.link", { type: "button", "aria-controls": "detail" }, name || "All models");
    const note = make("span.note");
    const trend = sparkline();
    const cells = Object.fromEntries(Object.keys(FIGURES).map((key) => [key, make("td", { class: `col-${key}` })]));
    const element = make(
      "tr",
      name ? {} : { class: "total" },
      make("th.col-model", { scope: "row" }, button, note),
      make("td.col-trend", trend.element),
      ...Object.values(cells),
    );
    element.addEventListener("click", () => choose(name));
    return { element, button, note, trend, cells };
  }

  function fill({ element, button, note, trend, cells }, summary, selected) {
    const [p50, , p90, , p99, p999] = summary.percentiles.map(milliseconds);
    const figures = {
      rate: rate(summary.rate),
      requests: count(summary.requests),
      errors: percent(errorPercent(summary)),
      mean: milliseconds(summary.mean),
      p50,
      p90,
      p99,
      p999,
      batch: rate(summary.batch),
    };
    for (const [key, cell] of Object.entries(cells)) setText(cell, figures[key]);
    cells.errors.classList.toggle("bad", summary.failures > 0);
    setText(note, summary.state === "READY" ? "" : (STATES[summary.state] ?? ""));
    trend.show(summary.trend);
    button.setAttribute("aria-expanded", summary.name === selected);
    element.classList.toggle("selected", summary.name === selected);
  }

  return {
    element: make("section.panel.models", { "aria-label": "Models" }, make("h2", "Models"), table),
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
    rate: trendChart({ title: "Requests per second", format: rate, min: 1 }),
    latency: trendChart({ title: "Latency", lines: { p50: "p50", p90: "p90", p99: "p99" }, format: milliseconds }),
    errors: trendChart({ title: "Errors", format: percent, min: 1 }),
    batch: trendChart({ title: "Images or texts per request", format: rate, min: 1 }),
  };
  const percentiles = figureTable("Latency percentiles", "");
  const batches = figureTable("Batch sizes", "No successful requests");
  const element = make(
    "section.panel",
    { id: "detail", "aria-labelledby": "detail-title" },
    title,
    make(
      "div.charts",
      ...Object.values(charts).map((chart) => chart.element),
      make("div.lists", percentiles.element, batches.element),
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
      setText(title, detail.name || "All models");
      charts.rate.show({ value: summary.trend }, interval, over);
      charts.latency.show({ p50: detail.p50, p90: detail.p90, p99: detail.p99 }, interval, over);
      charts.errors.show({ value: detail.errors }, interval, over);
      charts.batch.show({ value: detail.batch }, interval, over);
      percentiles.show([
        ["mean", milliseconds(summary.mean)],
        ...ranks.map((rank, index) => [`p${rank}`, milliseconds(summary.percentiles[index])]),
        ["slowest", milliseconds(summary.slowest)],
      ]);
      batches.show(detail.batches.map(([size, number]) => [size, count(number)]));
    },
  };
}

function processCharts() {
  const charts = {
    flight: trendChart({
      title: "Requests in flight",
      lines: { in_flight: "in flight", waiting: "waiting" },
      format: rate,
      min: 1,
    }),
    cpu: trendChart({ title: "CPU", format: cores, min: 1 }),
    memory: trendChart({ title: "Memory", format: bytes, round: roundBytes }),
  };
  return {
    element: make(
      "section.panel",
      { "aria-label": "This process" },
      make("h2", "This process"),
      make("div.charts", ...Object.values(charts).map((chart) => chart.element)),
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
