// The table of several images in Try: sorting, search, filters and pages.

import { button, choice, field, make, setText } from "./dom.js";
import { count, milliseconds, percent } from "./format.js";
import { swatch } from "./palette.js";
import { summaryOf } from "./results.js";

const THUMBNAIL_SIZE = 64;
const COLUMNS = { name: "File", label: "Labels", score: "Score", found: "Results", duration: "Time" };
const FILTERS = { all: "All", found: "With results", empty: "Without results", failed: "Failed" };
const PAGE_SIZE = 100;
const NUMERIC_COLUMNS = new Set(["score", "found", "duration"]);

// Return { element, run, show(rows, status), reset() }. Rows come from createRow, `run` are elements with the progress
// of their requests, and `onstop` stops them.
export function imageTable({ onstop }) {
  let [rows, order, limit, timer] = [[], { key: "name", descending: false }, PAGE_SIZE, 0];
  const search = make("input", { type: "search", placeholder: "File, label or error" });
  const show = choice(Object.entries(FILTERS), () => updateTable());
  const status = make("span.hint", { role: "status" });
  const resultCount = make("span.hint");
  const bar = make("progress", { max: 1, value: 0, "aria-label": "Finished images" });
  const stop = button("Stop", onstop);
  const headings = new Map(Object.keys(COLUMNS).map((key) => [key, createHeading(key)]));
  const body = make("tbody");
  const moreButton = button("Show more", () => {
    limit += PAGE_SIZE;
    updateTable();
  });
  const table = make(
    "table.text-table.images",
    make(
      "thead",
      make(
        "tr",
        make("th.col-image", { scope: "col" }, make("span.visually-hidden", "Image")),
        ...[...headings.values()].map((heading) => heading.element),
      ),
    ),
    body,
  );
  const element = make(
    "section.panel",
    { "aria-label": "Images", hidden: "" },
    make("h2", "Images"),
    make("div.row", field("Search", search), field("Show", show), resultCount),
    make("div.scrollable", table),
    moreButton,
  );

  function createHeading(key) {
    const arrow = make("span", { "aria-hidden": "true" });
    const sortButton = make("button.link", { type: "button" }, COLUMNS[key], arrow);
    const element = make("th", { scope: "col", class: `col-${key}` }, sortButton);
    sortButton.addEventListener("click", () => {
      order = { key, descending: order.key === key ? !order.descending : NUMERIC_COLUMNS.has(key) };
      updateTable();
    });
    return { element, arrow };
  }

  function updateTable() {
    const query = search.value.trim().toLowerCase();
    const filters = {
      all: () => true,
      found: (row) => row.found > 0,
      empty: (row) => row.found === 0,
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
    const [shown, all] = [visibleRows.length, rows.length];
    setText(resultCount, shown === all ? `${count(all)} images` : `${count(shown)} of ${count(all)} images`);
  }

  search.addEventListener("input", updateTable);
  return {
    element,
    run: [bar, status, stop],
    // Redraw at most every 200 ms: results arrive faster than anyone can read them.
    show(next, text, isRunning) {
      rows = next;
      element.hidden = rows.length < 2;
      bar.hidden = stop.hidden = !isRunning;
      [bar.max, bar.value] = [Math.max(rows.length, 1), rows.filter((row) => row.found !== null || row.error).length];
      setText(status, text);
      timer ||= setTimeout(() => {
        timer = 0;
        updateTable();
      }, isRunning ? 200 : 0);
    },
    reset() {
      limit = PAGE_SIZE;
    },
  };
}

// The row of one image: its thumbnail, its results and its sort keys. `onopen(image)` is called when its name is
// clicked.
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
        labels.replaceChildren(make("span.truncated", swatches, summary.shown));
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
