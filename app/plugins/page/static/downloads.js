// The results of the images in Try as files.

import { button, make, save } from "./dom.js";
import { toPng } from "./drawing.js";
import { session } from "./session.js";

const CSV_COLUMNS = ["file", "labels", "best_score", "found", "milliseconds", "error"];

// Return { element, show(records) }. `results(image)` is what is shown of its answer, `answers()` has the answer of
// each image, and `rows()` are those of the table.
export function downloadButtons(model, { shown, results, answers, rows, parameters }) {
  const stem = () => shown().name.replace(/\.[^.]*$/, "");

  function saveCsv() {
    const known = rows().map((row) => [
      row.name,
      row.label,
      row.score ?? "",
      row.found ?? "",
      row.milliseconds?.toFixed(1) ?? "",
      row.error,
    ]);
    save(new Blob([csvOf([CSV_COLUMNS, ...known])], { type: "text/csv" }), "images.csv");
  }

  function saveJson() {
    const { name, version, task_type } = model;
    const describe = (image) => {
      const { records, error } = answers().get(image) ?? {};
      // An image that was not shown yet has no known size, and one without an answer has no records.
      const size = image.width ? { width: image.width, height: image.height } : {};
      const own = records ? { records: results(image).map(({ index }) => records[index]) } : {};
      return { name: image.name, ...size, ...own, ...(error ? { error: error.message } : {}) };
    };
    const shared = { model: name, version, task_type, parameters: parameters() };
    const text = JSON.stringify({ ...shared, pictures: session.images.map(describe) }, null, 1);
    save(new Blob([`${text}\n`], { type: "application/json" }), `${stem()}.json`);
  }

  const csv = button("CSV", saveCsv);
  const png = button("PNG", async () => save(await toPng(shown(), results(shown())), `${stem()}.found.png`));
  const element = make(
    "div.row",
    { role: "group", "aria-label": "Download", hidden: "" },
    make("span.hint", "Download"),
    button("JSON", saveJson),
    csv,
    ...(model.geometry === null ? [] : [png]),
  );
  return {
    element,
    show(records) {
      element.hidden = !records;
      csv.hidden = !rows().length;
    },
  };
}

// RFC 4180, for spreadsheets.
function csvOf(rows) {
  return rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

// Prefix an apostrophe where a spreadsheet would run the value as a formula.
function cell(value) {
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
