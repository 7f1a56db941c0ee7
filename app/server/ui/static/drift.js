// The Drift view: how similar each model's images are to its baseline, by window.

import { trendChart } from "./charts.js";
import { requestJson } from "./connection.js";
import { make, setText } from "./dom.js";
import { count } from "./format.js";
import { text } from "./text.js";

const strings = text.drift;
const POLL_MS = 3000;
const MAX_ROWS = 20;

export const drift = { id: "drift", title: strings.title, open };

function open(main, tools) {
  const status = make("p", { class: "hint", role: "status" });
  const none = make("p", { class: "panel", hidden: "" }, strings.none);
  const list = make("div", { class: "cards" });
  const panels = new Map();
  main.append(make("div", { class: "heading" }, make("h1", {}, strings.title), status), none, list);
  let [closed, timer] = [false, 0];

  async function poll() {
    clearTimeout(timer);
    try {
      const history = await requestJson(new URL("page/drift.json", tools.root));
      if (closed) return;
      show(Object.entries(history));
    } catch (error) {
      setText(status, error.message);
    }
    if (closed) return;
    timer = setTimeout(pollIfVisible, POLL_MS);
  }

  function pollIfVisible() {
    clearTimeout(timer);
    if (!document.hidden) poll();
  }

  function show(models) {
    none.hidden = models.length > 0;
    const drifted = models.filter(([, windows]) => windows.at(-1).drifted).length;
    setText(status, models.length ? strings.summary(models.length, drifted) : "");
    for (const [name, windows] of models) {
      if (!panels.has(name)) {
        panels.set(name, createPanel(name));
        list.append(panels.get(name).element);
      }
      panels.get(name).show(windows);
    }
  }

  document.addEventListener("visibilitychange", pollIfVisible);
  poll();
  return {
    change() {},
    close() {
      closed = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", pollIfVisible);
    },
  };
}

function createPanel(name) {
  const state = make("span", { class: "badge" });
  const similarity = trendChart({
    title: strings.similarity,
    lines: ["similarity", "baseline"],
    format: (value) => (value === null ? "–" : value.toFixed(2)),
    min: 1,
  });
  const pValues = trendChart({ title: strings.pValue, lines: ["p_value", "alpha"], format: formatP, min: 0.1 });
  const headRow = make("tr");
  const body = make("tbody");
  const table = make(
    "table",
    { class: "text-table drift-windows", "aria-label": strings.windows(name) },
    make("thead", {}, headRow),
    body,
  );
  return {
    element: make(
      "section",
      { class: "panel", "aria-label": name },
      make("div", { class: "card-header" }, make("h2", {}, name), state),
      make("div", { class: "charts" }, similarity.element, pValues.element),
      make("div", { class: "scrollable", tabindex: "0", role: "group", "aria-label": strings.windows(name) }, table),
    ),
    show(summaries) {
      const windows = summaries.map((window) => ({
        ...window,
        tests: Object.fromEntries(window.tests.map((test) => [test.name, test.adjusted])),
      }));
      const last = windows.at(-1);
      setText(state, strings.verdict(last.drifted));
      state.dataset.state = last.drifted ? "UNAVAILABLE" : "READY";
      const over = strings.over(windows.length);
      const column = (key) => windows.map((window) => window[key]);
      similarity.show({ similarity: column("similarity"), baseline: column("baseline_similarity") }, "windows", over);
      const lowest = windows.map((window) => Math.min(1, ...Object.values(window.tests)));
      pValues.show({ p_value: lowest, alpha: column("alpha") }, "windows", over);
      const tests = Object.keys(last.tests);
      const headings = [...strings.columns, ...tests];
      headRow.replaceChildren(...headings.map((heading) => make("th", { scope: "col" }, heading)));
      body.replaceChildren(
        ...windows
          .slice(-MAX_ROWS)
          .reverse()
          .map((window) => createRow(window, tests)),
      );
    },
  };
}

function createRow(window, tests) {
  const cells = [strings.verdict(window.drifted), count(window.images), window.similarity?.toFixed(3) ?? "–"];
  const testCells = tests.map((test) => {
    const p = window.tests[test];
    return make("td", p <= window.alpha ? { class: "bad" } : {}, p === undefined ? "–" : formatP(p));
  });
  const row = make(
    "tr",
    {},
    make("th", { scope: "row" }, strings.time(window.ended)),
    ...cells.map((cell) => make("td", {}, cell)),
    ...testCells,
  );
  if (window.drifted) row.children[1].classList.add("bad");
  return row;
}

function formatP(value) {
  if (value === null) return "–";
  return value > 0 && value < 0.001 ? "< 0.001" : value.toFixed(3);
}
