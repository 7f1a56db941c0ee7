// In Recorded: how similar each model's images are to its baseline, by window.

import { poll, requestJson } from "./connection.js";
import { disclosure, make, setText, tableHead } from "./dom.js";
import { count, counted, localTime } from "./format.js";

const POLL_MS = 3000;
const MAX_ROWS = 20;
const COLUMNS = ["Ended", "Verdict", "Images", "Similarity", "Baseline"];
const NONE = "No window is complete yet. Each window is compared with the baseline when it has all its images.";

export function extend(container, { tools }) {
  const status = make("span.hint", { role: "status" });
  const none = make("p", { hidden: "" }, NONE);
  const list = make("div.cards");
  const panels = new Map();
  container.append(disclosure(make("h2", "Drift"), status, none, list));

  const polling = poll(async () => {
    try {
      const history = await requestJson(new URL("page/drift.json", tools.root));
      if (!polling.closed) show(Object.entries(history));
    } catch (error) {
      setText(status, error.message);
    }
  }, POLL_MS);

  function show(models) {
    none.hidden = models.length > 0;
    const drifted = models.filter(([, windows]) => windows.at(-1).drifted).map(([name]) => name);
    const verdicts = drifted.length ? `Drifted: ${drifted.join(", ")}` : `No drift in ${counted(models.length, "model")}`;
    setText(status, models.length ? verdicts : "");
    status.classList.toggle("bad", drifted.length > 0);
    for (const [name, windows] of models) {
      if (!panels.has(name)) {
        panels.set(name, createPanel(name));
        list.append(panels.get(name).element);
      }
      panels.get(name).show(windows);
    }
  }

  return { close: polling.close };
}

function createPanel(name) {
  const state = make("span.badge");
  const label = `Windows of ${name}`;
  const table = make("table.text-table.figures-table", { "aria-label": label });
  return {
    element: make(
      "section",
      { "aria-label": name },
      make("div.card-header", make("h3", name), state),
      make("div.scrollable", { tabindex: "0", role: "group", "aria-label": label }, table),
    ),
    show(summaries) {
      const windows = summaries.map((window) => ({
        ...window,
        tests: Object.fromEntries(window.tests.map((test) => [test.name, test.adjusted])),
      }));
      const last = windows.at(-1);
      setText(state, verdict(last));
      state.dataset.state = last.drifted ? "UNAVAILABLE" : "READY";
      const tests = Object.keys(last.tests);
      const rows = windows.slice(-MAX_ROWS).reverse();
      const body = make("tbody", ...rows.map((window) => createRow(window, tests)));
      table.replaceChildren(tableHead([...COLUMNS, ...tests]), body);
    },
  };
}

function createRow(window, tests) {
  const similarities = [window.similarity, window.baseline_similarity].map((value) => value?.toFixed(3) ?? "–");
  const cells = [verdict(window), count(window.images), ...similarities];
  const testCells = tests.map((test) => {
    const p = window.tests[test];
    return make("td", p <= window.alpha ? { class: "bad" } : {}, p === undefined ? "–" : formatP(p));
  });
  const row = make(
    "tr",
    make("th", { scope: "row" }, localTime(window.ended * 1000)),
    ...cells.map((cell) => make("td", cell)),
    ...testCells,
  );
  if (window.drifted) row.children[1].classList.add("bad");
  return row;
}

function verdict({ drifted }) {
  return drifted ? "drifted" : "no drift";
}

function formatP(value) {
  if (value === null) return "–";
  return value > 0 && value < 0.001 ? "< 0.001" : value.toFixed(3);
}
