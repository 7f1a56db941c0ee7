// A dialog with one image of a folder and its results.

import { summaryOf } from "./batch_row.js";
import { button } from "./controls.js";
import { make, setText } from "./dom.js";
import { filterShapes, shapesOf } from "./drawing.js";
import { readImage } from "./images.js";
import { text } from "./text.js";
import { viewer } from "./viewer.js";

const strings = text.batch;

export async function showDialog(main, row, task, score) {
  const view = viewer({ label: strings.imageOf(row.name) });
  const title = make("h2", { id: "inspected", tabindex: "-1" }, row.name);
  const note = make("p", { class: "hint" });
  const close = button(strings.close, () => dialog.close());
  const dialog = make(
    "dialog",
    { class: "large", "aria-labelledby": "inspected" },
    make("div", { class: "heading" }, title, close),
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
  const summary = row.records === null ? "" : summaryOf(task, row.records, score).shown || strings.nothing;
  setText(note, row.error ?? (summary || strings.waiting));
  const image = await readImage(row.file, row.name).catch(() => null);
  if (!dialog.isConnected) return;
  view.element.hidden = image === null;
  if (image === null) return;
  view.show(image);
  view.shapes(filterShapes(shapesOf(task, row.records ?? [], image.width, image.height), { score }));
}
