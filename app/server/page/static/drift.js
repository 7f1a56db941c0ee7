// The Drift view: how similar each model's images are to its baseline, by window.

import { trendChart } from "./charts.js";
import { make, say } from "./dom.js";
import { count } from "./format.js";
import { text } from "./text.js";

const words = text.drift;
const PATIENCE = 3000;
const ROWS = 20;

export const drift = { id: "drift", title: words.title, open };

function open(main, tools) {
  const told = make("p", { class: "hint", role: "status" });
  const none = make("p", { class: "panel", hidden: "" }, words.none);
  const list = make("div", { class: "cards" });
  const panels = new Map();
  main.append(make("div", { class: "heading" }, make("h1", {}, words.title), told), none, list);
  let [closed, timer] = [false, 0];

  async function look() {
    clearTimeout(timer);
    const response = await fetch(new URL("page/drift.json", tools.root)).catch(() => null);
    const found = response?.ok ? await response.json().catch(() => null) : null;
    if (closed) return;
    if (found === null) say(told, words.unreachable);
    else show(Object.entries(found));
    timer = setTimeout(turn, PATIENCE);
  }

  function turn() {
    clearTimeout(timer);
    if (!document.hidden) look();
  }

  function show(models) {
    none.hidden = models.length > 0;
    const drifted = models.filter(([, windows]) => windows.at(-1).drifted).length;
    say(told, models.length ? words.summary(models.length, drifted) : "");
    for (const [name, windows] of models) {
      if (!panels.has(name)) {
        panels.set(name, panelOf(name));
        list.append(panels.get(name).element);
      }
      panels.get(name).show(windows);
    }
  }

  document.addEventListener("visibilitychange", turn);
  look();
  return {
    change() {},
    close() {
      closed = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", turn);
    },
  };
}

function panelOf(name) {
  const state = make("span", { class: "badge" });
  const similarity = trendChart({
    title: words.similarity,
    lines: ["similarity", "baseline"],
    format: (value) => (value === null ? "–" : value.toFixed(2)),
    least: 1,
  });
  const evidence = trendChart({ title: words.least, lines: ["least", "alpha"], format: written, least: 0.1 });
  const head = make("tr");
  const body = make("tbody");
  const table = make(
    "table",
    { class: "words windows-of", "aria-label": words.windows(name) },
    make("thead", {}, head),
    body,
  );
  return {
    element: make(
      "section",
      { class: "panel", "aria-label": name },
      make("div", { class: "card-head" }, make("h2", {}, name), state),
      make("div", { class: "charts" }, similarity.element, evidence.element),
      make("div", { class: "scrolls", tabindex: "0", role: "group", "aria-label": words.windows(name) }, table),
    ),
    show(windows) {
      const last = windows.at(-1);
      say(state, words.verdict(last.drifted));
      state.dataset.state = last.drifted ? "UNAVAILABLE" : "READY";
      const over = words.over(windows.length);
      const all = (key) => windows.map((window) => window[key]);
      similarity.show({ similarity: all("similarity"), baseline: all("baseline_similarity") }, "windows", over);
      const least = windows.map((window) => Math.min(1, ...Object.values(window.tests)));
      evidence.show({ least, alpha: all("alpha") }, "windows", over);
      const tests = Object.keys(last.tests);
      const heads = [...words.columns, ...tests];
      head.replaceChildren(...heads.map((heading) => make("th", { scope: "col" }, heading)));
      body.replaceChildren(
        ...windows
          .slice(-ROWS)
          .reverse()
          .map((window) => rowOf(window, tests)),
      );
    },
  };
}

function rowOf(window, tests) {
  const cells = [words.verdict(window.drifted), count(window.images), window.similarity?.toFixed(3) ?? "–"];
  const judged = tests.map((test) => {
    const p = window.tests[test];
    return make("td", p <= window.alpha ? { class: "bad" } : {}, p === undefined ? "–" : written(p));
  });
  const row = make(
    "tr",
    {},
    make("th", { scope: "row" }, words.time(window.ended)),
    ...cells.map((cell) => make("td", {}, cell)),
    ...judged,
  );
  if (window.drifted) row.children[1].classList.add("bad");
  return row;
}

function written(value) {
  if (value === null) return "–";
  return value > 0 && value < 0.001 ? "< 0.001" : value.toFixed(3);
}
