// A dialog with one image of a folder and its results.

import { summaryOf } from "./batch_row.js";
import { button, make, setText } from "./dom.js";
import { filterShapes, shapesOf } from "./drawing.js";
import { readImage } from "./images.js";
import { viewer } from "./viewer.js";

export async function showDialog(main, row, task, score) {
  const view = viewer({ label: `${row.name} with results` });
  const title = make("h2", { id: "inspected", tabindex: "-1" }, row.name);
  const note = make("p.hint");
  const close = button("Close", () => dialog.close());
  const dialog = make(
    "dialog.large",
    { "aria-labelledby": "inspected" },
    make("div.heading", title, close),
    note,
    view.element,
  );
  main.append(dialog);
  dialog.addEventListener("close", () => {
    view.close();
    dialog.remove();
    row.button.focus();
  });
  dialog.showModal();
  close.focus();
  const summary = row.records === null ? "" : summaryOf(task, row.records, score).shown || "no results";
  setText(note, row.error ?? (summary || "waiting"));
  const image = await readImage(row.file, row.name).catch(() => null);
  if (!dialog.isConnected) return;
  view.element.hidden = image === null;
  if (image === null) return;
  view.show(image);
  view.shapes(filterShapes(shapesOf(task, row.records ?? [], image.width, image.height), { score }));
}
