// The table of several images in Try: sorting, search, filters and pages.

import { button, choice, field, make, setText } from "./dom.js";
import { count } from "./format.js";

const COLUMNS = { name: "File", label: "Labels", score: "Score", found: "Results", duration: "Time" };
const FILTERS = { all: "All", found: "With results", empty: "Without results", failed: "Failed" };
const PAGE_SIZE = 100;
const NUMERIC_COLUMNS = new Set(["score", "found", "duration"]);

// Return { element, show(rows, status), reset() }. Rows are those of image_row.js; `onstop` stops their requests.
export function imageTable({ onstop }) {
  let [rows, order, limit, timer] = [[], { key: "name", descending: false }, PAGE_SIZE, 0];
  const search = make("input", { type: "search", placeholder: "File, label or error" });
  const show = choice(Object.entries(FILTERS), () => updateTable());
  const status = make("p.hint", { role: "status" });
  const resultCount = make("span.hint");
  const bar = make("progress", { max: 1, value: 0, "aria-label": "Finished images" });
  const progress = make("div.row", bar, button("Stop", onstop));
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
    make("div.heading", make("h2", "Images"), status),
    progress,
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
    // Redraw at most every 200 ms: results arrive faster than anyone can read them.
    show(next, text, isRunning) {
      rows = next;
      element.hidden = rows.length < 2;
      progress.hidden = !isRunning;
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
