// The row of one image in the table of several: its thumbnail, its results and its sort keys.

import { make, setText } from "./dom.js";
import { milliseconds, percent } from "./format.js";
import { swatch } from "./palette.js";
import { summaryOf } from "./results.js";

const THUMBNAIL_SIZE = 64;

// `onopen(image)` is called with the image whose name was clicked.
export function createRow(image, onopen) {
  const { name } = image;
  const side = { width: THUMBNAIL_SIZE, height: THUMBNAIL_SIZE };
  const thumbnail = make("canvas.thumbnail", { ...side, "aria-hidden": "true" });
  const button = make("button.link", { type: "button" }, name);
  const [labels, score, found, time] = ["label", "score", "found", "duration"].map((key) =>
    make("td", { class: `col-${key}` }),
  );
  const heading = make("th.col-name", { scope: "row" }, button);
  const element = make("tr", make("td.col-image", thumbnail), heading, labels, score, found, time);
  let isDrawn = false;
  const row = {
    name,
    element,
    error: "",
    label: "",
    score: null,
    found: null,
    milliseconds: null,
    key: (key) =>
      ({ name, label: row.label || null, score: row.score, found: row.found, duration: row.milliseconds })[key],
    searchText: () => `${name} ${row.label} ${row.error}`.toLowerCase(),
    // `answer` is undefined while the image waits, and `records` are those of it that are shown.
    show(answer, task, records) {
      const error = answer?.error ?? null;
      const summary = summaryOf(task, records);
      const isAnswered = Boolean(answer) && error === null;
      row.error = error?.message.replace(`${name}: `, "") ?? "";
      [row.label, row.score] = [summary.text, summary.score];
      row.found = isAnswered ? records.length : null;
      row.milliseconds = isAnswered ? answer.milliseconds : null;
      element.classList.toggle("failed", error !== null);
      setText(score, isAnswered ? (row.score === null ? "–" : percent(100 * row.score)) : "");
      setText(found, isAnswered ? String(row.found) : "");
      setText(time, isAnswered ? milliseconds(row.milliseconds) : "");
      if (!isAnswered) setText(labels, error === null ? "waiting" : row.error);
      else if (!records.length) labels.replaceChildren(make("span.hint", "no results"));
      else {
        const swatches = make("span.swatches", ...summary.labels.slice(0, 6).map(swatch));
        labels.replaceChildren(swatches, make("span.truncated", summary.shown));
      }
    },
    // Call it only for visible rows: a folder may hold thousands of images.
    async drawThumbnail() {
      if (isDrawn) return;
      isDrawn = true;
      const size = { resizeHeight: THUMBNAIL_SIZE, resizeQuality: "medium", imageOrientation: "from-image" };
      const bitmap = await createImageBitmap(image.blob, size).catch(() => null);
      if (bitmap === null) return;
      const scale = Math.min(1, THUMBNAIL_SIZE / bitmap.width);
      const [width, height] = [bitmap.width * scale, bitmap.height * scale];
      const [left, top] = [(THUMBNAIL_SIZE - width) / 2, (THUMBNAIL_SIZE - height) / 2];
      thumbnail.getContext("2d").drawImage(bitmap, left, top, width, height);
      bitmap.close();
    },
  };
  button.addEventListener("click", () => onopen(image));
  return row;
}
