// The table of the Batch view: sorting, search, filters and pages.

import { button, choice, field } from "./controls.js";
import { make, setText } from "./dom.js";
import { text } from "./text.js";

const strings = text.batch;
const PAGE_SIZE = 100;
const NUMERIC_COLUMNS = new Set(["score", "found", "time"]);

// Return { element, show(rows), reset() }. Rows are those of batch_row.js.
export function batchTable(saveButtons) {
  let [rows, order, limit] = [[], { key: "name", descending: false }, PAGE_SIZE];
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
  const element = make(
    "section",
    { class: "panel", "aria-label": strings.results, hidden: "" },
    make(
      "div",
      { class: "row" },
      field(strings.search, search),
      field(strings.show, show),
      make("div", { class: "actions" }, ...saveButtons),
    ),
    resultCount,
    make("div", { class: "scrollable" }, table),
    moreButton,
  );

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

  function updateTable() {
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

  search.addEventListener("input", updateTable);
  return {
    element,
    show(next) {
      rows = next;
      updateTable();
    },
    reset() {
      limit = PAGE_SIZE;
    },
  };
}
