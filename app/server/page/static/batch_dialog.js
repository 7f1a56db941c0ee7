// A dialog with one image of a folder and its results.

import { summaryOf } from "./batch_row.js";
import { button } from "./controls.js";
import { make, say } from "./dom.js";
import { narrow, shapesOf } from "./drawing.js";
import { readPicture } from "./images.js";
import { text } from "./text.js";
import { viewer } from "./viewer.js";

const words = text.batch;

export async function inspect(main, row, task, score) {
  const view = viewer({ label: words.pictureOf(row.name) });
  const title = make("h2", { id: "inspected", tabindex: "-1" }, row.name);
  const note = make("p", { class: "hint" });
  const close = button(words.close, () => dialog.close());
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
  const found = row.records === null ? "" : summaryOf(task, row.records, score).shown || words.nothing;
  say(note, row.error ?? (found || words.waiting));
  const picture = await readPicture(row.file, row.name);
  if (!dialog.isConnected) return;
  view.element.hidden = picture.bitmap === null;
  view.show(picture);
  view.shapes(narrow(shapesOf(task, row.records ?? [], picture.width, picture.height), { score }));
}
