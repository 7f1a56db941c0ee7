// The Metrics view: all requests, every model, and charts of the selected model.

import { distributionChart, roundBytes, sparkline, trendChart } from "./charts.js";
import { make, say } from "./dom.js";
import { example } from "./curl_example.js";
import { follow } from "./snapshots.js";
import { aligned, bytes, cores, count, milliseconds, percent, rate } from "./format.js";
import { text } from "./text.js";

const words = text.metrics;
const ID = "metrics";
const WINDOWS = Object.keys(words.windows);
const COLUMNS = ["rate", "requests", "errors", "mean", "p50", "p90", "p99", "p999", "batch"];

export const metrics = { id: ID, title: words.title, open };

function open(main, tools) {
  const chosen = { window: WINDOWS[0], model: "" };
  const go = (changes) => {
    const { window, model } = { ...chosen, ...changes };
    tools.go(ID, model ? { window, model } : { window });
  };
  const parts = [
    toolbar((window) => go({ window })),
    notice(),
    tiles(),
    empty(tools),
    models((model) => {
      go({ model: model === chosen.model ? "" : model });
      detail.reveal();
    }),
  ];
  const detail = details();
  parts.push(detail, processCharts());
  main.append(...parts.map((part) => part.element));
  let close = () => {};

  function show(snapshot) {
    // Skip a late snapshot of the previous window.
    if (snapshot.window !== chosen.window) return;
    const over = words.spoken[snapshot.window];
    for (const part of parts) part.show(snapshot, over);
    tools.about(text.up(snapshot.version, snapshot.age));
  }

  return {
    change(parameters) {
      close();
      chosen.window = WINDOWS.includes(parameters.get("window")) ? parameters.get("window") : WINDOWS[0];
      chosen.model = parameters.get("model") ?? "";
      parts[0].choose(chosen.window);
      const url = new URL("page/events", tools.root);
      url.search = new URLSearchParams(chosen);
      close = follow(url, show, tools.state);
    },
    close() {
      close();
    },
  };
}

function toolbar(choose) {
  const buttons = new Map();
  for (const window of WINDOWS) {
    const button = make("button", { type: "button" }, words.windows[window]);
    button.addEventListener("click", () => choose(window));
    buttons.set(window, button);
  }
  const group = make("div", { class: "windows", role: "group", "aria-label": words.window }, ...buttons.values());
  return {
    element: make("div", { class: "toolbar" }, make("h1", {}, words.title), group),
    choose(chosen) {
      for (const [window, button] of buttons) button.setAttribute("aria-pressed", window === chosen);
    },
    show() {},
  };
}

// Why load balancers see this server as not ready.
function notice() {
  const reason = make("p");
  const element = make("section", { class: "panel notice", hidden: "" }, make("h2", {}, words.unready), reason);
  return {
    element,
    show({ unready }) {
      element.hidden = !unready;
      say(reason, unready);
    },
  };
}

function tiles() {
  const found = {};
  const list = make("dl", { class: "tiles" });
  for (const [key, label] of Object.entries(words.tiles)) {
    const [value, hint] = [make("dd", { class: "figure" }), make("dd", { class: "hint" })];
    found[key] = (figure, about) => {
      say(value, figure);
      say(hint, about);
    };
    list.append(make("div", { "data-tile": key }, make("dt", {}, label), value, hint));
  }
  return {
    element: make("section", { "aria-label": words.summary }, list),
    show({ total, now, window, machine_memory: machine }) {
      found.rate(`${rate(total.rate)}/s`, words.requests(total.requests, words.windows[window]));
      found.median(milliseconds(total.percentiles[0]), words.mean(milliseconds(total.mean)));
      found.p99(milliseconds(total.percentiles[4]), words.slowest(milliseconds(total.slowest)));
      found.errors(percent(share(total)), words.failed(total.failures, total.requests));
      found.flight(count(now.in_flight), words.hands);
      found.waiting(count(now.waiting), words.queue);
      found.cpu(cores(now.cpu), words.cores);
      found.memory(bytes(now.memory), words.machine(bytes(machine)));
    },
  };
}

function empty(tools) {
  const shell = example(tools.root);
  const element = make("section", { class: "panel empty", hidden: "" }, make("h2", {}, words.empty), shell.element);
  return {
    element,
    show({ ever, models: known }) {
      element.hidden = ever > 0;
      if (!element.hidden) shell.show(known);
    },
  };
}

function models(choose) {
  const body = make("tbody");
  const heads = ["model", "trend", ...COLUMNS].map((key) =>
    make("th", { scope: "col", class: `of-${key}` }, words.columns[key]),
  );
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body);
  const rows = new Map();

  function row(name) {
    const button = make("button", { type: "button", "aria-controls": "detail" }, name || words.all);
    const note = make("span", { class: "note" });
    const trend = sparkline();
    const cells = Object.fromEntries(COLUMNS.map((key) => [key, make("td", { class: `of-${key}` })]));
    const element = make(
      "tr",
      name ? {} : { class: "total" },
      make("th", { scope: "row", class: "of-model" }, button, note),
      make("td", { class: "of-trend" }, trend.element),
      ...Object.values(cells),
    );
    element.addEventListener("click", () => choose(name));
    return { element, button, note, trend, cells };
  }

  function fill({ element, button, note, trend, cells }, summary, chosen) {
    const [p50, , p90, , p99, p999] = summary.percentiles.map(milliseconds);
    const figures = {
      rate: aligned(summary.rate),
      requests: count(summary.requests),
      errors: percent(share(summary)),
      mean: milliseconds(summary.mean),
      p50,
      p90,
      p99,
      p999,
      batch: aligned(summary.batch),
    };
    for (const key of COLUMNS) say(cells[key], figures[key]);
    cells.errors.classList.toggle("bad", summary.failures > 0);
    say(note, words.states[summary.state] ?? "");
    trend.show(summary.trend);
    button.setAttribute("aria-expanded", summary.name === chosen);
    element.classList.toggle("chosen", summary.name === chosen);
  }

  return {
    element: make("section", { class: "panel models", "aria-label": words.models }, make("h2", {}, words.models), table),
    show({ total, models: known, detail }) {
      const summaries = [total, ...known];
      for (const name of rows.keys()) {
        if (summaries.some((summary) => summary.name === name)) continue;
        rows.get(name).element.remove();
        rows.delete(name);
      }
      summaries.forEach((summary, place) => {
        if (!rows.has(summary.name)) {
          rows.set(summary.name, row(summary.name));
          body.insertBefore(rows.get(summary.name).element, body.children[place] ?? null);
        }
        fill(rows.get(summary.name), summary, detail.name);
      });
    },
  };
}

function details() {
  const title = make("h2", { id: "detail-title" });
  const charts = {
    rate: trendChart({ title: words.charts.rate, lines: ["value"], format: rate, least: 1 }),
    latency: trendChart({ title: words.charts.latency, lines: ["p50", "p90", "p99"], format: milliseconds }),
    errors: trendChart({ title: words.charts.errors, lines: ["value"], format: percent, least: 1 }),
    batch: trendChart({ title: words.charts.batch, lines: ["value"], format: rate, least: 1 }),
  };
  const distribution = distributionChart({ title: words.charts.cdf, format: milliseconds });
  const percentiles = figures(words.percentiles);
  const batches = figures(words.batches);
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
      const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
      element.scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "start" });
    },
    show({ total, models: known, detail, interval, percentiles: ranks }, over) {
      const summary = known.find((model) => model.name === detail.name) ?? total;
      say(title, detail.name || words.all);
      charts.rate.show({ value: summary.trend }, interval, over);
      charts.latency.show({ p50: detail.p50, p90: detail.p90, p99: detail.p99 }, interval, over);
      charts.errors.show({ value: detail.errors }, interval, over);
      charts.batch.show({ value: detail.batch }, interval, over);
      const [median, p99] = [summary.percentiles[0], summary.percentiles[4]].map(milliseconds);
      const label = detail.cdf.length ? words.cdfLabel(median, p99) : words.emptyLabel(words.charts.cdf, over);
      distribution.show(detail.cdf, label);
      percentiles.show([
        [words.meanRow, milliseconds(summary.mean)],
        ...ranks.map((rank, place) => [words.percentile(rank), milliseconds(summary.percentiles[place])]),
        [words.slowestRow, milliseconds(summary.slowest)],
      ]);
      batches.show(detail.batches.map(([size, number]) => [size, count(number)]));
    },
  };
}

function processCharts() {
  const charts = {
    flight: trendChart({ title: words.charts.flight, lines: ["in_flight", "waiting"], format: rate, least: 1 }),
    cpu: trendChart({ title: words.charts.cpu, lines: ["value"], format: cores, least: 1 }),
    memory: trendChart({ title: words.charts.memory, lines: ["value"], format: bytes, round: roundBytes }),
  };
  return {
    element: make(
      "section",
      { class: "panel", "aria-label": words.process },
      make("h2", {}, words.process),
      make("div", { class: "charts" }, ...Object.values(charts).map((chart) => chart.element)),
    ),
    show({ process, interval }, over) {
      charts.flight.show({ in_flight: process.in_flight, waiting: process.waiting }, interval, over);
      charts.cpu.show({ value: process.cpu }, interval, over);
      charts.memory.show({ value: process.memory }, interval, over);
    },
  };
}

// A table of names and figures. It keeps its rows while the names stay the same.
function figures(title) {
  const body = make("tbody");
  const none = make("p", { class: "hint" }, words.batchesNone);
  let names = "";
  return {
    element: make("div", {}, make("h3", {}, title), make("table", { class: "figures", "aria-label": title }, body), none),
    show(pairs) {
      none.hidden = pairs.length > 0;
      const now = pairs.map(([name]) => name).join();
      if (now !== names) {
        names = now;
        body.replaceChildren(
          ...pairs.map(([name]) => make("tr", {}, make("th", { scope: "row" }, name), make("td"))),
        );
      }
      pairs.forEach(([, figure], place) => say(body.rows[place].cells[1], figure));
    },
  };
}

function share({ failures, requests }) {
  return requests ? (100 * failures) / requests : null;
}
