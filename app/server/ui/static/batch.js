// The Batch view: runs a model on a folder of images, and lists the results in a table.

import { showDialog } from "./batch_dialog.js";
import { createRow } from "./batch_row.js";
import { batchTable } from "./batch_table.js";
import { candidateLabels } from "./candidate_labels.js";
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
const MAX_ATTEMPTS = 6;

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
  const labels = candidateLabels(() => start(rows.map((row) => row.file)));
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
  const results = batchTable([button(strings.csv, () => saveCsv()), button(strings.json, () => saveJson())]);
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
        labels.element,
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
    results.element,
  );
  let [rows, pending, timer] = [[], null, 0];

  const current = () => models.find(({ name }) => name === model.value);

  function start(files) {
    pending?.abort();
    saveAddress();
    labels.show([current()]);
    const images = files.filter(isImage);
    if (!files.length) return;
    message.clear();
    if (images.length < files.length) message.show(strings.skipped(files.length - images.length));
    if (!images.length) return;
    rows = images.map((file) => createRow(file, (row) => showDialog(main, row, current().task_type, score.value())));
    const missing = labels.missing([current()]);
    results.element.hidden = progress.hidden = missing !== undefined;
    if (missing) {
      message.showError(text.try.needsLabels(missing.name));
      return;
    }
    empty.hidden = true;
    results.reset();
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
    const low = selected.parameters.score_threshold ? { score_threshold: MIN_SCORE } : {};
    const parameters = { ...low, ...labels.parameters(selected) };
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
    [bar.max, bar.value] = [Math.max(rows.length, 1), rows.filter((row) => row.records || row.error).length];
    results.show(rows);
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

  for (const type of ["dragover", "drop"]) main.addEventListener(type, drop);
  return {
    change(parameters) {
      const name = parameters.get("model") ?? session.model;
      const requested = models.find((model) => model.name === name);
      if (parameters.has("model") && !requested) message.showError(strings.unknown(name));
      model.value = (requested ?? models.find((model) => taskOf(model.task_type).geometry !== null) ?? models[0]).name;
      const threshold = Number.parseFloat(parameters.get("score"));
      if (threshold >= MIN_SCORE && threshold <= 1) score.set(threshold);
      labels.show([current()]);
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
