// A dialog with one recorded inference: its image, its results and its details.

import { request } from "./connection.js";
import { button, make, setText } from "./dom.js";
import { shapesOf } from "./drawing.js";
import { count, localTime, milliseconds, valueText } from "./format.js";
import { readImage } from "./images.js";
import { recordList, shortened } from "./results.js";
import { viewer } from "./viewer.js";

// Limit tensor answers; the JSON link has the full answer.
const MAX_CHARACTERS = 20000;

// `newer` and `older` open the neighbours; null if there are none. Return { close() }.
export function showRecording(main, root, inference, { newer, older, onclose }) {
  const view = viewer({ label: "Image of the request, with results" });
  const list = recordList({ onhover: (index) => view.choose(index) });
  view.onhover = (index) => list.choose(index);
  const note = make("p.hint");
  const facts = make(
    "dl.facts",
    ...detailsOf(inference).flatMap(([name, value]) => [make("dt", name), make("dd", value)]),
  );
  const heading = `${inference.model}, ${localTime(inference.started / 1000)}`;
  const title = make("h2", { id: "recorded-title", tabindex: "-1" }, heading);
  const closeButton = button("Close", () => dialog.close());
  const stepButton = (label, open) => {
    const element = button(label, () => {
      isStepping = true;
      dialog.close();
      open();
    });
    element.disabled = open === null;
    return element;
  };
  const json = make("a", { href: new URL(`inferences/${encodeURIComponent(inference.id)}`, root) }, "JSON");
  const dialog = make(
    "dialog.large",
    { "aria-labelledby": "recorded-title" },
    make(
      "div.heading",
      title,
      make("div.actions", json, stepButton("Newer", newer), stepButton("Older", older), closeButton),
    ),
    note,
    make("div.recording-details", view.element, make("div", list.element, facts)),
  );
  let isStepping = false;
  main.append(dialog);
  dialog.addEventListener("close", () => {
    view.close();
    dialog.remove();
    if (!isStepping) onclose();
  });
  dialog.showModal();
  // Focus the title: a button below the image would scroll the dialog.
  title.focus();
  const resultNote = inference.records?.length ? "" : "no results";
  setText(note, inference.error ? inference.message || inference.error : resultNote);
  const labelled = (inference.records ?? []).flatMap((record, index) =>
    record.label === undefined ? [] : [{ score: 1, ...record, index }],
  );
  list.show(labelled);
  if (!labelled.length && inference.records?.length) {
    const records = shortened(JSON.stringify(inference.records, null, 1), MAX_CHARACTERS);
    list.element.append(make("pre", { tabindex: "0" }, records));
  }
  showImage();

  async function showImage() {
    view.element.hidden = !inference.image?.kept;
    if (!inference.image?.kept) {
      if (inference.image) setText(note, [note.textContent, "The image was not stored."].filter(Boolean).join(" "));
      return;
    }
    const url = new URL(`inferences/${encodeURIComponent(inference.id)}/image`, root);
    const response = await request(url).catch(() => null);
    if (!dialog.isConnected) return;
    if (!response?.ok) {
      view.element.hidden = true;
      setText(note, "The image is no longer stored.");
      return;
    }
    const decoded = await readImage(await response.blob(), inference.id).catch(() => ({ bitmap: null }));
    const { width, height } = inference.image;
    // Formats that the browser cannot show still have a size, and therefore shapes.
    view.show({ ...decoded, width, height });
    view.shapes(shapesOf(inference.task_type, inference.records ?? [], width, height));
  }

  return { close: () => dialog.close() };
}

function detailsOf(inference) {
  const { image, parameters } = inference;
  const all = [
    ["Time", new Date(inference.started / 1000).toISOString()],
    ["Id", inference.id],
    ["Request id", inference.request_id],
    ["Base id", inference.base_id],
    ["Protocol", inference.protocol],
    ["Version", inference.version],
    ["Task", inference.task_type],
    ["Duration", milliseconds(inference.duration / 1000)],
    ["Image", image ? `${image.width} × ${image.height}, ${count(Math.ceil(image.size / 1024))} KiB` : ""],
    ["SHA-256", image?.digest],
    ["Reason", inference.reason],
    ["Truth", truthText(inference.truth)],
    ["Parameters", Object.keys(parameters).length ? JSON.stringify(parameters) : ""],
    ...inference.metadata.map(({ key, type, value }) => [key, `${valueText(value)} (${type})`]),
  ];
  return all.filter(([, value]) => value);
}

// What people said about the answer: the verdict, the right labels, and who said it.
function truthText(truth) {
  if (!truth) return "";
  const labels = (truth.records ?? []).map((record) => record.label ?? JSON.stringify(record));
  const author = [truth.source, truth.author].filter(Boolean).join(", ");
  const right = labels.length ? `: ${labels.join(", ")}` : "";
  return [`${truth.verdict}${right}`, author && `(${author})`, truth.comment].filter(Boolean).join(" ");
}
