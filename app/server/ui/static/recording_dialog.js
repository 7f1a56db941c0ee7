// A dialog with one recorded inference: its image, its results and its details.

import { request } from "./connection.js";
import { button } from "./controls.js";
import { make, setText } from "./dom.js";
import { shapesOf } from "./drawing.js";
import { milliseconds } from "./format.js";
import { readImage } from "./images.js";
import { recordList } from "./results.js";
import { text } from "./text.js";
import { viewer } from "./viewer.js";

const strings = text.recorded;
// Limit tensor answers; the JSON link has the full answer.
const MAX_CHARACTERS = 20000;

// `newer` and `older` open the neighbours; null if there are none. Return { close() }.
export function showRecording(main, root, inference, { newer, older, onclose }) {
  const view = viewer({ label: strings.image });
  const list = recordList({ onhover: (index) => view.choose(index) });
  view.onhover = (index) => list.choose(index);
  const note = make("p", { class: "hint" });
  const facts = make(
    "dl",
    { class: "facts" },
    ...detailsOf(inference).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]),
  );
  const title = make(
    "h2",
    { id: "recorded-title", tabindex: "-1" },
    strings.heading(inference.model, strings.time(inference.started)),
  );
  const closeButton = button(strings.close, () => dialog.close());
  const stepButton = (label, open) => {
    const element = button(label, () => {
      isStepping = true;
      dialog.close();
      open();
    });
    element.disabled = open === null;
    return element;
  };
  const json = make("a", { href: new URL(`inferences/${encodeURIComponent(inference.id)}`, root) }, strings.json);
  const dialog = make(
    "dialog",
    { class: "large", "aria-labelledby": "recorded-title" },
    make(
      "div",
      { class: "heading" },
      title,
      make(
        "div",
        { class: "actions" },
        json,
        stepButton(strings.newer, newer),
        stepButton(strings.older, older),
        closeButton,
      ),
    ),
    note,
    view.element,
    make("div", { class: "recording-details" }, list.element, facts),
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
  const resultNote = inference.records?.length ? "" : strings.nothing;
  setText(note, inference.error ? inference.message || inference.error : resultNote);
  const labelled = (inference.records ?? []).flatMap((record, index) =>
    record.label === undefined ? [] : [{ score: 1, ...record, index }],
  );
  list.show(labelled);
  if (!labelled.length && inference.records?.length)
    list.element.append(make("pre", { tabindex: "0" }, shortened(JSON.stringify(inference.records, null, 1))));
  showImage();

  async function showImage() {
    view.element.hidden = !inference.image?.kept;
    if (!inference.image?.kept) {
      if (inference.image) setText(note, [note.textContent, strings.notKept].filter(Boolean).join(" "));
      return;
    }
    const url = new URL(`inferences/${encodeURIComponent(inference.id)}/image`, root);
    const response = await request(url).catch(() => null);
    if (!dialog.isConnected) return;
    if (!response?.ok) {
      view.element.hidden = true;
      setText(note, strings.imageGone);
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

function shortened(value) {
  return value.length > MAX_CHARACTERS ? `${value.slice(0, MAX_CHARACTERS)} …` : value;
}

function detailsOf(inference) {
  const { image, parameters } = inference;
  const all = [
    [strings.facts.time, strings.isoTime(inference.started)],
    [strings.facts.id, inference.id],
    [strings.facts.request, inference.request_id],
    [strings.facts.base, inference.base_id],
    [strings.facts.protocol, inference.protocol],
    [strings.facts.version, inference.version],
    [strings.facts.task, inference.task_type],
    [strings.facts.duration, milliseconds(inference.duration / 1000)],
    [strings.facts.image, image ? `${image.width} × ${image.height}, ${strings.size(image.size)}` : ""],
    [strings.facts.digest, image?.digest],
    [strings.facts.parameters, Object.keys(parameters).length ? JSON.stringify(parameters) : ""],
    ...inference.metadata.map(({ key, type, value }) => [key, `${strings.value(value)} (${type})`]),
  ];
  return all.filter(([, value]) => value);
}
