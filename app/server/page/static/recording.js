// One recorded inference in a dialog: its picture with what was found, and all that is known of it.

import { button } from "./controls.js";
import { make, say } from "./dom.js";
import { shapesOf } from "./drawing.js";
import { milliseconds } from "./format.js";
import { readPicture } from "./pictures.js";
import { recordList } from "./results.js";
import { text } from "./text.js";
import { viewer } from "./viewer.js";

const words = text.recorded;
// Of answers that are tensors; the link has all of it.
const LONGEST = 20000;

// `newer` and `older` open the neighbours, null where there are none. Gives back { close() }.
export function inspect(main, root, each, { newer, older, closed }) {
  const view = viewer({ label: words.picture });
  const list = recordList({ onhover: (index) => view.choose(index) });
  view.onhover = (index) => list.choose(index);
  const note = make("p", { class: "hint" });
  const facts = make(
    "dl",
    { class: "facts" },
    ...pairs(each).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]),
  );
  const title = make(
    "h2",
    { id: "recorded-title", tabindex: "-1" },
    words.heading(each.model, words.time(each.started)),
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
  const json = make("a", { href: new URL(`inferences/${encodeURIComponent(each.id)}`, root) }, words.json);
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
  // Not a button below the picture, which would be scrolled to.
  title.focus();
  say(note, each.error ? each.message || each.error : each.records?.length ? "" : words.nothing);
  const scored = (each.records ?? []).flatMap((record, index) =>
    record.label === undefined ? [] : [{ score: 1, ...record, index }],
  );
  list.show(scored);
  if (!scored.length && each.records?.length)
    list.element.append(make("pre", { tabindex: "0" }, cut(JSON.stringify(each.records, null, 1))));
  picture();

  async function picture() {
    view.element.hidden = !each.image?.kept;
    if (!each.image?.kept) {
      if (each.image) say(note, [note.textContent, words.notKept].filter(Boolean).join(" "));
      return;
    }
    const response = await fetch(new URL(`inferences/${encodeURIComponent(each.id)}/image`, root)).catch(() => null);
    if (!dialog.isConnected) return;
    if (!response?.ok) {
      view.element.hidden = true;
      say(note, words.pictureGone);
      return;
    }
    const found = await readPicture(await response.blob(), each.id);
    const { width, height } = each.image;
    // What the browser cannot show still has its size, and so its shapes.
    view.show({ ...found, width, height });
    view.shapes(shapesOf(each.task_type, each.records ?? [], width, height));
  }

  return { close: () => dialog.close() };
}

function cut(written) {
  return written.length > LONGEST ? `${written.slice(0, LONGEST)} …` : written;
}

function pairs(each) {
  const { image } = each;
  const all = [
    [words.facts.time, words.moment(each.started)],
    [words.facts.id, each.id],
    [words.facts.request, each.request_id],
    [words.facts.base, each.base_id],
    [words.facts.protocol, each.protocol],
    [words.facts.version, each.version],
    [words.facts.task, each.task_type],
    [words.facts.took, milliseconds(each.duration / 1000)],
    [words.facts.image, image ? `${image.width} × ${image.height}, ${words.size(image.size)}` : ""],
    [words.facts.digest, image?.digest],
    [words.facts.parameters, Object.keys(each.parameters).length ? JSON.stringify(each.parameters) : ""],
    ...each.metadata.map(({ key, type, value }) => [key, `${words.value(value)} (${type})`]),
  ];
  return all.filter(([, value]) => value);
}
