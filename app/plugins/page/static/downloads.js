// The results of the images in Try as files.

import { button, make, save } from "./dom.js";
import { toPng } from "./drawing.js";
import { sleep, wake } from "./images.js";
import { session } from "./session.js";

const CSV_COLUMNS = ["file", "labels", "best_score", "found", "milliseconds", "error"];

// Return { element, show(records) }. `results(image)` is what is shown of its answer, `answers()` has the answer of
// each image, and `rows()` are those of the table.
export function downloadButtons(model, { shown, results, answers, rows, parameters }) {
  const stem = () => shown().name.replace(/\.[^.]*$/, "");

  // Boxes and contours need the size of their image.
  async function exported(withSizes = false) {
    const all = [];
    for (const image of session.images) {
      const { records, error } = answers().get(image) ?? {};
      if (withSizes && records && !image.width) {
        await wake(image).catch(() => {});
        if (image !== shown()) sleep(image);
      }
      const shapes = results(image);
      all.push({ image, shapes, records: records && shapes.map(({ index }) => records[index]), error });
    }
    return all;
  }

  async function saveCsv() {
    const { csvOf } = await import("./export.js");
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

  async function saveJson() {
    const { jsonFile } = await import("./export.js");
    save(jsonFile(model, parameters(), await exported()), `${stem()}.json`);
  }

  async function saveCoco() {
    const { coco } = await import("./export.js");
    const answered = (await exported(true)).filter(({ image, records }) => records && image.width);
    save(coco(model, answered), `${stem()}.coco.json`);
  }

  const csv = button("CSV", saveCsv);
  const ofShapes = [
    button("PNG", async () => save(await toPng(shown(), results(shown())), `${stem()}.found.png`)),
    button("COCO", saveCoco),
  ];
  const element = make(
    "div.row",
    { role: "group", "aria-label": "Download", hidden: "" },
    make("span.hint", "Download"),
    button("JSON", saveJson),
    csv,
    ...(model.geometry === null ? [] : ofShapes),
  );
  return {
    element,
    show(records) {
      element.hidden = !records;
      csv.hidden = !rows().length;
    },
  };
}
