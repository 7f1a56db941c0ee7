// The Batch view: runs a model on a folder of images, and lists the results in a table.

import { showDialog } from "./batch_dialog.js";
import { createRow } from "./batch_row.js";
import { batchTable } from "./batch_table.js";
import { MIN_SCORE, candidateLabels } from "./candidate_labels.js";
import { imageModels, notImageModel, readyModels, waitForModels } from "./catalogue.js";
import { button, field, fileButton, make, save, setText, slider } from "./dom.js";
import { csvOf } from "./export.js";
import { isImage, receiveFiles } from "./files.js";
import { count, counted } from "./format.js";
import { infer } from "./inference.js";
import { modelChoice, modelView } from "./model_view.js";
import { session } from "./session.js";

const MAX_CONCURRENT = 4;
const MAX_ATTEMPTS = 6;
const CSV_COLUMNS = ["file", "labels", "best_score", "found", "milliseconds", "error"];

export const open = modelView({
  title: "Batch",
  none: "No image model is ready. Load one to run it on a folder.",
  select: imageModels,
  create: createBatchView,
});

function createBatchView({ main, content, tools, catalogue, models, message, status }) {
  const model = modelChoice(models, restart);
  const { current } = model;
  const score = slider({ label: "Confidence threshold", min: MIN_SCORE, value: 0.5, oninput: () => updateRows() });
  const labels = candidateLabels(restart);
  const stop = button("Stop", () => pending?.abort());
  const bar = make("progress", { max: 1, value: 0, "aria-label": "Finished images" });
  const results = batchTable([button("Save as CSV", () => saveCsv()), button("Save as JSON", () => saveJson())]);
  const progress = make("div.row", { hidden: "" }, bar, stop);
  const hint = "Choose a folder or images, or drop them here. Images are sent only to this server.";
  const empty = make("p.hint", hint);
  content.append(
    make(
      "section.panel",
      { "aria-label": "Inputs" },
      make(
        "div.row",
        field("Model", model),
        score.element,
        labels.element,
        make(
          "div.actions",
          ...fileButton("Choose a folder", start, { multiple: "", webkitdirectory: "" }),
          ...fileButton("Choose images", start),
        ),
      ),
      progress,
      empty,
    ),
    results.element,
  );
  let [rows, pending, timer] = [[], null, 0];

  function restart() {
    start(rows.map((row) => row.file));
  }

  function start(files) {
    pending?.abort();
    saveAddress();
    labels.show([current()]);
    const images = files.filter(isImage);
    if (!files.length) return;
    message.clear();
    const skipped = files.length - images.length;
    if (skipped === 1) message.show("Skipped 1 file that is not an image");
    else if (skipped) message.show(`Skipped ${count(skipped)} files that are not images`);
    if (!images.length) return;
    rows = images.map((file) => createRow(file, (row) => showDialog(main, row, current().task_type, score.value())));
    const missing = labels.missing([current()]);
    results.element.hidden = progress.hidden = missing !== "";
    if (missing) {
      message.showError(missing);
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
    setText(status, `Sending ${counted(remaining.length, "image")} …`);
    updateTable();
    await Promise.all(Array.from({ length: MAX_CONCURRENT }, () => worker(queue, thisRun.signal)));
    if (thisRun !== pending) return;
    progress.hidden = true;
    const failed = all.filter((row) => row.error).length;
    const done = all.filter((row) => row.records).length;
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    setText(
      status,
      thisRun.signal.aborted
        ? `Stopped after ${count(done)} of ${count(all.length)} images`
        : `${count(done)} answered${failed ? `, ${count(failed)} failed` : ""} in ${seconds} s`,
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
    for (let attempt = 1; ; attempt += 1) {
      try {
        const parameters = labels.parameters(selected);
        const data = [{ name: row.name, blob: row.file }];
        const result = await infer({ root: tools.root, catalogue, model: selected, data, parameters, signal });
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
      ...(row.error ? { error: row.error } : {}),
      // An image without an answer has no records, unlike an image without results.
      ...(row.records ? { records: row.records.filter((record) => record.score >= score_threshold) } : {}),
    }));
    const content = JSON.stringify({ model: model.value, score_threshold, answers }, null, 1);
    save(new Blob([content], { type: "application/json" }), "batch.json");
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
    save(new Blob([csvOf([CSV_COLUMNS, ...lines])], { type: "text/csv" }), "batch.csv");
  }

  // Run the images again that failed while the server could not be reached.
  async function recover() {
    const isReady = (latest) => readyModels(latest).some(({ name }) => name === model.value);
    await waitForModels(tools.root, (latest) => !isReady(latest)).catch(message.showError);
    const failed = rows.filter((row) => row.error);
    for (const row of failed) row.reset();
    if (failed.length) run(rows, failed);
  }

  const stopReceiving = receiveFiles(main, start);
  return {
    change(parameters) {
      const name = parameters.get("model") ?? session.model;
      const requested = model.find(name);
      if (parameters.has("model") && !requested) message.showError(notImageModel(name));
      model.value = (requested ?? models.find(({ geometry }) => geometry !== null) ?? models[0]).name;
      const threshold = Number.parseFloat(parameters.get("score"));
      if (threshold >= MIN_SCORE && threshold <= 1) score.set(threshold);
      labels.show([current()]);
      if (rows.length) restart();
    },
    recover,
    close() {
      pending?.abort();
      clearTimeout(timer);
      stopReceiving();
    },
  };
}
