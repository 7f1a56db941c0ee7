// The Batch view: runs a model on a folder of images, and lists the results in a table.

import { showDialog } from "./batch_dialog.js";
import { createRow } from "./batch_row.js";
import { readyModels, inputKind, waitForModels } from "./catalogue.js";
import { button, choice, field, save, slider } from "./controls.js";
import { modelView } from "./model_view.js";
import { make, setText } from "./dom.js";
import { droppedFiles, isImage } from "./dropped_files.js";
import { csvOf } from "./export.js";
import { infer } from "./inference.js";
import { session } from "./session.js";
import { taskOf } from "./tasks.js";
import { text } from "./text.js";

const strings = text.batch;
const ID = "batch";
const MIN_SCORE = 0.05;
const MAX_CONCURRENT = 4;
const PAGE_SIZE = 100;
const MAX_ATTEMPTS = 6;
const NUMERIC_COLUMNS = new Set(["score", "found", "time"]);

export const batch = modelView({
  id: ID,
  title: strings.title,
  none: strings.none,
  select: (catalogue) => readyModels(catalogue).filter((model) => inputKind(model.task_type) === "image"),
  create: createBatchView,
});

function createBatchView({ main, content, tools, catalogue, models, message, status }) {
  const model = choice(
    models.map((model) => [model.name, model.name]),
    () => start(rows.map((row) => row.file)),
  );
  const score = slider({ label: strings.score, min: MIN_SCORE, value: 0.5, oninput: () => updateRows() });
  const fileButton = (attributes, label) => {
    const input = make("input", { type: "file", multiple: "", hidden: "", "aria-label": label, ...attributes });
    input.addEventListener("change", () => {
      start([...input.files]);
      input.value = "";
    });
    return [button(label, () => input.click()), input];
  };
  const stop = button(strings.stop, () => pending?.abort());
  const bar = make("progress", { max: 1, value: 0, "aria-label": strings.progress });
  const search = make("input", { type: "search", placeholder: strings.searchHint });
  const show = choice(Object.entries(strings.filters), () => updateTable());
  const resultCount = make("p", { class: "hint", role: "status" });
  const headings = new Map(Object.keys(strings.columns).map((key) => [key, createHeading(key)]));
  const body = make("tbody");
  const moreButton = button(strings.more, () => {
    limit += PAGE_SIZE;
    updateTable();
  });
  const table = make(
    "table",
    { class: "text-table batch" },
    make(
      "thead",
      {},
      make(
        "tr",
        {},
        make("th", { scope: "col", class: "col-image" }, make("span", { class: "visually-hidden" }, strings.image)),
        ...[...headings.values()].map((heading) => heading.element),
      ),
    ),
    body,
  );
  const results = make(
    "section",
    { class: "panel", "aria-label": strings.results, hidden: "" },
    make(
      "div",
      { class: "row" },
      field(strings.search, search),
      field(strings.show, show),
      make(
        "div",
        { class: "actions" },
        button(strings.csv, () => saveCsv()),
        button(strings.json, () => saveJson()),
      ),
    ),
    resultCount,
    make("div", { class: "scrollable" }, table),
    moreButton,
  );
  const progress = make("div", { class: "row", hidden: "" }, bar, stop);
  const empty = make("p", { class: "hint" }, strings.empty);
  content.append(
    make(
      "section",
      { class: "panel", "aria-label": strings.inputs },
      make(
        "div",
        { class: "row" },
        field(strings.model, model),
        score.element,
        make(
          "div",
          { class: "actions" },
          ...fileButton({ webkitdirectory: "" }, strings.folder),
          ...fileButton({ accept: "image/*" }, strings.files),
        ),
      ),
      progress,
      empty,
    ),
    results,
  );
  let [rows, order, limit, pending, timer] = [[], { key: "name", descending: false }, PAGE_SIZE, null, 0];

  function createHeading(key) {
    const arrow = make("span", { "aria-hidden": "true" });
    const sortButton = make("button", { type: "button", class: "link" }, strings.columns[key], arrow);
    const element = make("th", { scope: "col", class: `col-${key}` }, sortButton);
    sortButton.addEventListener("click", () => {
      order = { key, descending: order.key === key ? !order.descending : NUMERIC_COLUMNS.has(key) };
      updateTable();
    });
    return { element, arrow };
  }

  const current = () => models.find(({ name }) => name === model.value);

  function start(files) {
    pending?.abort();
    saveAddress();
    const images = files.filter(isImage);
    if (!files.length) return;
    message.clear();
    if (images.length < files.length) message.show(strings.skipped(files.length - images.length));
    if (!images.length) return;
    rows = images.map((file) => createRow(file, (row) => showDialog(main, row, current().task_type, score.value())));
    [limit, empty.hidden, results.hidden, progress.hidden] = [PAGE_SIZE, true, false, false];
    run(rows);
  }

  async function run(all, remaining = all) {
    const thisRun = (pending = new AbortController());
    const started = performance.now();
    const queue = [...remaining];
    progress.hidden = false;
    setText(status, strings.working(remaining.length));
    updateTable();
    await Promise.all(Array.from({ length: MAX_CONCURRENT }, () => worker(queue, thisRun.signal)));
    if (thisRun !== pending) return;
    progress.hidden = true;
    const failed = all.filter((row) => row.error).length;
    const done = all.filter((row) => row.records).length;
    setText(
      status,
      thisRun.signal.aborted
        ? strings.stopped(done, all.length)
        : strings.done(done, failed, (performance.now() - started) / 1000),
    );
    updateRows();
  }

  async function worker(queue, signal) {
    while (queue.length && !signal.aborted) {
      const row = queue.shift();
      try {
        await requestRow(row, signal);
      } catch (error) {
        if (error.name === "AbortError") return;
        row.error = error.message;
      }
      row.show(current(), score.value());
      scheduleUpdate();
    }
  }

  // A busy server answers 429: wait, then send the image again.
  async function requestRow(row, signal) {
    const selected = current();
    const parameters = selected.parameters.score_threshold ? { score_threshold: MIN_SCORE } : {};
    for (let attempt = 1; ; attempt += 1) {
      try {
        const result = await infer({
          root: tools.root,
          catalogue,
          model: selected,
          data: [{ name: row.name, blob: row.file }],
          parameters,
          signal,
        });
        [row.records, row.milliseconds] = [result.outputs[0], result.milliseconds];
        return;
      } catch (error) {
        if (error.status !== 429 || attempt === MAX_ATTEMPTS) throw error;
        await new Promise((resolve) => setTimeout(resolve, 250 * 2 ** attempt));
      }
    }
  }

  // Redraw at most every 200 ms: results arrive faster than anyone can read them.
  function scheduleUpdate() {
    if (timer) return;
    timer = setTimeout(() => {
      timer = 0;
      updateTable();
    }, 200);
  }

  function updateRows() {
    saveAddress();
    for (const row of rows) row.show(current(), score.value());
    updateTable();
  }

  function updateTable() {
    const done = rows.filter((row) => row.records || row.error).length;
    [bar.max, bar.value] = [Math.max(rows.length, 1), done];
    const query = search.value.trim().toLowerCase();
    const filters = {
      all: () => true,
      found: (row) => row.found > 0,
      empty: (row) => row.records && row.found === 0,
      failed: (row) => row.error,
    };
    const visibleRows = rows.filter((row) => filters[show.value](row) && row.searchText().includes(query));
    const { key, descending } = order;
    const sign = descending ? -1 : 1;
    visibleRows.sort((one, other) => {
      const [left, right] = [one.key(key), other.key(key)];
      // Unknown values come last in both directions.
      if (left === null || right === null) return (left === null) - (right === null);
      return sign * (typeof left === "string" ? left.localeCompare(right, "en", { numeric: true }) : left - right);
    });
    for (const [name, heading] of headings) {
      const sorted = name === key ? (descending ? "descending" : "ascending") : "none";
      heading.element.setAttribute("aria-sort", sorted);
      setText(heading.arrow, { descending: " ▼", ascending: " ▲", none: "" }[sorted]);
    }
    const focused = document.activeElement;
    body.replaceChildren(...visibleRows.slice(0, limit).map((row) => row.element));
    if (focused !== document.activeElement && body.contains(focused)) focused.focus();
    for (const row of visibleRows.slice(0, limit)) row.drawThumbnail();
    moreButton.hidden = visibleRows.length <= limit;
    setText(resultCount, strings.counted(visibleRows.length, rows.length));
  }

  function saveAddress() {
    tools.save({ model: model.value, score: score.value() });
  }

  function saveJson() {
    const score_threshold = score.value();
    const answers = rows.map((row) => ({
      file: row.name,
      ...(row.error
        ? { error: row.error }
        : { records: (row.records ?? []).filter((record) => record.score >= score_threshold) }),
    }));
    save(
      new Blob([JSON.stringify({ model: model.value, score_threshold, answers }, null, 1)], {
        type: "application/json",
      }),
      "batch.json",
    );
  }

  function saveCsv() {
    const lines = rows.map((row) => [
      row.name,
      row.label,
      row.score ?? "",
      row.found ?? "",
      row.milliseconds?.toFixed(1) ?? "",
      row.error ?? "",
    ]);
    save(new Blob([csvOf([strings.csvColumns, ...lines])], { type: "text/csv" }), "batch.csv");
  }

  // Run the images again that failed while the server could not be reached.
  async function recover() {
    const isReady = (latest) => readyModels(latest).some(({ name }) => name === model.value);
    await waitForModels(tools.root, (latest) => !isReady(latest)).catch(message.showError);
    const failed = rows.filter((row) => row.error);
    for (const row of failed) row.reset();
    if (failed.length) run(rows, failed);
  }

  async function drop(event) {
    event.preventDefault();
    if (event.type === "drop") start(await droppedFiles(event.dataTransfer));
  }

  search.addEventListener("input", updateTable);
  for (const type of ["dragover", "drop"]) main.addEventListener(type, drop);
  return {
    change(parameters) {
      const name = parameters.get("model") ?? session.model;
      const requested = models.find((model) => model.name === name);
      if (parameters.has("model") && !requested) message.showError(strings.unknown(name));
      model.value = (requested ?? models.find((model) => taskOf(model.task_type).geometry !== null) ?? models[0]).name;
      const threshold = Number.parseFloat(parameters.get("score"));
      if (threshold >= MIN_SCORE && threshold <= 1) score.set(threshold);
      if (rows.length) start(rows.map((row) => row.file));
    },
    recover,
    close() {
      pending?.abort();
      clearTimeout(timer);
      for (const type of ["dragover", "drop"]) main.removeEventListener(type, drop);
    },
  };
}
