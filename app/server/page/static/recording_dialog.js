// A dialog with one recorded inference: its image, its results and its details.

import { button } from "./controls.js";
import { make, say } from "./dom.js";
import { shapesOf } from "./drawing.js";
import { milliseconds } from "./format.js";
import { readPicture } from "./images.js";
import { recordList } from "./results.js";
import { text } from "./text.js";
import { viewer } from "./viewer.js";

const words = text.recorded;
// Limit tensor answers; the JSON link has the full answer.
const LONGEST = 20000;

// `newer` and `older` open the neighbours; null if there are none. Return { close() }.
export function inspect(main, root, inference, { newer, older, closed }) {
  const view = viewer({ label: words.picture });
  const list = recordList({ onhover: (index) => view.choose(index) });
  view.onhover = (index) => list.choose(index);
  const note = make("p", { class: "hint" });
  const facts = make(
    "dl",
    { class: "facts" },
    ...pairs(inference).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]),
  );
  const title = make(
    "h2",
    { id: "recorded-title", tabindex: "-1" },
    words.heading(inference.model, words.time(inference.started)),
  );
  const shut = button(words.close, () => dialog.close());
  const step = (label, act) => {
    const element = button(label, () => {
      moved = true;
      dialog.close();
      act();
    });
    element.disabled = act === null;
    return element;
  };
  const json = make("a", { href: new URL(`inferences/${encodeURIComponent(inference.id)}`, root) }, words.json);
  const dialog = make(
    "dialog",
    { class: "large", "aria-labelledby": "recorded-title" },
    make(
      "div",
      { class: "heading" },
      title,
      make("div", { class: "acts" }, json, step(words.newer, newer), step(words.olderOne, older), shut),
    ),
    note,
    view.element,
    make("div", { class: "about-recorded" }, list.element, facts),
  );
  let moved = false;
  main.append(dialog);
  dialog.addEventListener("close", () => {
    view.close();
    dialog.remove();
    if (!moved) closed();
  });
  dialog.showModal();
  // Focus the title: a button below the image would scroll the dialog.
  title.focus();
  say(note, inference.error ? inference.message || inference.error : inference.records?.length ? "" : words.nothing);
  const scored = (inference.records ?? []).flatMap((record, index) =>
    record.label === undefined ? [] : [{ score: 1, ...record, index }],
  );
  list.show(scored);
  if (!scored.length && inference.records?.length)
    list.element.append(make("pre", { tabindex: "0" }, cut(JSON.stringify(inference.records, null, 1))));
  picture();

  async function picture() {
    view.element.hidden = !inference.image?.kept;
    if (!inference.image?.kept) {
      if (inference.image) say(note, [note.textContent, words.notKept].filter(Boolean).join(" "));
      return;
    }
    const response = await fetch(new URL(`inferences/${encodeURIComponent(inference.id)}/image`, root)).catch(() => null);
    if (!dialog.isConnected) return;
    if (!response?.ok) {
      view.element.hidden = true;
      say(note, words.pictureGone);
      return;
    }
    const found = await readPicture(await response.blob(), inference.id);
    const { width, height } = inference.image;
    // Formats that the browser cannot show still have a size, and therefore shapes.
    view.show({ ...found, width, height });
    view.shapes(shapesOf(inference.task_type, inference.records ?? [], width, height));
  }

  return { close: () => dialog.close() };
}

function cut(written) {
  return written.length > LONGEST ? `${written.slice(0, LONGEST)} …` : written;
}

function pairs(inference) {
  const { image } = inference;
  const all = [
    [words.facts.time, words.moment(inference.started)],
    [words.facts.id, inference.id],
    [words.facts.request, inference.request_id],
    [words.facts.base, inference.base_id],
    [words.facts.protocol, inference.protocol],
    [words.facts.version, inference.version],
    [words.facts.task, inference.task_type],
    [words.facts.took, milliseconds(inference.duration / 1000)],
    [words.facts.image, image ? `${image.width} × ${image.height}, ${words.size(image.size)}` : ""],
    [words.facts.digest, image?.digest],
    [words.facts.parameters, Object.keys(inference.parameters).length ? JSON.stringify(inference.parameters) : ""],
    ...inference.metadata.map(({ key, type, value }) => [key, `${words.value(value)} (${type})`]),
  ];
  return all.filter(([, value]) => value);
}
