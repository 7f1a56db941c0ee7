// One image of a folder: its table row, its thumbnail and its sort keys.

import { make, say } from "./dom.js";
import { colourOf } from "./drawing.js";
import { isolated, milliseconds, percent } from "./format.js";
import { text } from "./text.js";

const words = text.batch;
const SIDE = 64;

// Summarise the results at a threshold: the best class, or the number of each label.
export function summaryOf(task, records, threshold) {
  const kept = records.filter((record) => record.score >= threshold).sort((one, other) => other.score - one.score);
  if (task === "IMAGE_CLASSIFICATION") {
    const best = kept[0];
    return {
      text: best?.label ?? "",
      shown: isolated(best?.label ?? ""),
      labels: best ? [best.label] : [],
      score: best?.score ?? null,
      found: kept.length,
    };
  }
  const counts = new Map();
  for (const { label } of kept) counts.set(label, (counts.get(label) ?? 0) + 1);
  const said = (written) =>
    [...counts].map(([label, number]) => (number > 1 ? `${number} × ${written(label)}` : written(label))).join(", ");
  const [plain, shown] = [said(String), said(isolated)];
  return { text: plain, shown, labels: [...counts.keys()], score: kept[0]?.score ?? null, found: kept.length };
}

export function rowOf(file, inspect) {
  const name = file.webkitRelativePath || file.name;
  const thumbnail = make("canvas", { class: "thumbnail", width: SIDE, height: SIDE, "aria-hidden": "true" });
  const button = make("button", { type: "button", class: "link" }, name);
  const [labels, score, found, time] = ["label", "score", "found", "time"].map((key) =>
    make("td", { class: `of-${key}` }),
  );
  const head = make("th", { scope: "row", class: "of-name" }, button);
  const element = make("tr", {}, make("td", { class: "of-picture" }, thumbnail), head, labels, score, found, time);
  let painted = false;
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
    words: () => `${name} ${row.label} ${row.error ?? ""}`.toLowerCase(),
    show(model, threshold) {
      if (row.error !== null) {
        element.classList.add("failed");
        say(labels, row.error);
        return;
      }
      if (row.records === null) return;
      const summary = summaryOf(model.task_type, row.records, threshold);
      [row.label, row.score, row.found] = [summary.text, summary.score, summary.found];
      const chips = summary.labels.length
        ? [swatches(summary.labels), make("span", { class: "brief" }, summary.shown)]
        : [make("span", { class: "hint" }, words.nothing)];
      labels.replaceChildren(...chips);
      say(score, row.score === null ? "–" : percent(100 * row.score));
      say(found, String(row.found));
      say(time, milliseconds(row.milliseconds));
    },
    // Call it only for visible rows: a folder may hold thousands of images.
    async paint() {
      if (painted) return;
      painted = true;
      const size = { resizeHeight: SIDE, resizeQuality: "medium", imageOrientation: "from-image" };
      const bitmap = await createImageBitmap(file, size).catch(() => null);
      if (bitmap === null) return;
      const scale = Math.min(1, SIDE / bitmap.width);
      const [width, height] = [bitmap.width * scale, bitmap.height * scale];
      thumbnail.getContext("2d").drawImage(bitmap, (SIDE - width) / 2, (SIDE - height) / 2, width, height);
      bitmap.close();
    },
  };
  say(labels, words.waiting);
  button.addEventListener("click", () => inspect(row));
  return row;
}

function swatches(labels) {
  const keys = labels.slice(0, 6).map((label) => {
    const key = make("span", { class: "swatch" });
    key.style.background = colourOf(label);
    return key;
  });
  return make("span", { class: "swatches" }, ...keys);
}
