// One image of a folder: its table row, its thumbnail and its sort keys.

import { taskOf } from "./catalogue.js";
import { make, setText } from "./dom.js";
import { isolated, milliseconds, percent } from "./format.js";
import { swatch } from "./palette.js";

const THUMBNAIL_SIZE = 64;

// Summarise the results at a threshold: the best class, or the number of each label.
export function summaryOf(task, records, threshold) {
  const selected = records.filter((record) => record.score >= threshold).sort((one, other) => other.score - one.score);
  if (taskOf(task).returns === "classes") {
    const best = selected[0];
    return {
      text: best?.label ?? "",
      shown: isolated(best?.label ?? ""),
      labels: best ? [best.label] : [],
      score: best?.score ?? null,
      found: selected.length,
    };
  }
  const counts = new Map();
  for (const { label } of selected) counts.set(label, (counts.get(label) ?? 0) + 1);
  const describe = (format) =>
    [...counts].map(([label, number]) => (number > 1 ? `${number} × ${format(label)}` : format(label))).join(", ");
  const [plainText, shown] = [describe(String), describe(isolated)];
  const score = selected[0]?.score ?? null;
  return { text: plainText, shown, labels: [...counts.keys()], score, found: selected.length };
}

export function createRow(file, oninspect) {
  const name = file.webkitRelativePath || file.name;
  const side = { width: THUMBNAIL_SIZE, height: THUMBNAIL_SIZE };
  const thumbnail = make("canvas.thumbnail", { ...side, "aria-hidden": "true" });
  const button = make("button.link", { type: "button" }, name);
  const [labels, score, found, time] = ["label", "score", "found", "time"].map((key) =>
    make("td", { class: `col-${key}` }),
  );
  const heading = make("th.col-name", { scope: "row" }, button);
  const element = make("tr", make("td.col-image", thumbnail), heading, labels, score, found, time);
  let isDrawn = false;
  const row = {
    file,
    name,
    element,
    button,
    records: null,
    error: null,
    milliseconds: null,
    label: "",
    score: null,
    found: null,
    key: (key) => ({ name, label: row.label || null, score: row.score, found: row.found, time: row.milliseconds })[key],
    reset() {
      row.error = null;
      element.classList.remove("failed");
      setText(labels, "waiting");
    },
    searchText: () => `${name} ${row.label} ${row.error ?? ""}`.toLowerCase(),
    show(model, threshold) {
      if (row.error !== null) {
        element.classList.add("failed");
        setText(labels, row.error);
        return;
      }
      if (row.records === null) return;
      const summary = summaryOf(model.task_type, row.records, threshold);
      [row.label, row.score, row.found] = [summary.text, summary.score, summary.found];
      const content = summary.labels.length
        ? [make("span.swatches", ...summary.labels.slice(0, 6).map(swatch)), make("span.truncated", summary.shown)]
        : [make("span.hint", "no results")];
      labels.replaceChildren(...content);
      setText(score, row.score === null ? "–" : percent(100 * row.score));
      setText(found, String(row.found));
      setText(time, milliseconds(row.milliseconds));
    },
    // Call it only for visible rows: a folder may hold thousands of images.
    async drawThumbnail() {
      if (isDrawn) return;
      isDrawn = true;
      const size = { resizeHeight: THUMBNAIL_SIZE, resizeQuality: "medium", imageOrientation: "from-image" };
      const bitmap = await createImageBitmap(file, size).catch(() => null);
      if (bitmap === null) return;
      const scale = Math.min(1, THUMBNAIL_SIZE / bitmap.width);
      const [width, height] = [bitmap.width * scale, bitmap.height * scale];
      const [left, top] = [(THUMBNAIL_SIZE - width) / 2, (THUMBNAIL_SIZE - height) / 2];
      thumbnail.getContext("2d").drawImage(bitmap, left, top, width, height);
      bitmap.close();
    },
  };
  setText(labels, "waiting");
  button.addEventListener("click", () => oninspect(row));
  return row;
}
