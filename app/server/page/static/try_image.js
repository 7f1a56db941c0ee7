// Try a model that returns classes or shapes for images.
//
// Each image is requested once with a low threshold, and the confidence slider filters the answer. While the IoU slider
// moves, the page filters an answer without NMS. When it stops, a new request is sent, because only the server has the
// boxes before clipping.

import { coco, written } from "./export.js";
import { button, save } from "./controls.js";
import { make, say } from "./dom.js";
import { narrow, shapesOf, toPng } from "./drawing.js";
import { gallery } from "./image_list.js";
import { infer } from "./inference.js";
import { parameterForm } from "./parameters.js";
import { recordList } from "./results.js";
import { session } from "./session.js";
import { text } from "./text.js";
import { trialOf } from "./try_layout.js";
import { viewer } from "./viewer.js";

const words = text.try;
const FAINT = 0.05;
const LOOSE = 0.95;
const MOST = { IMAGE_SEGMENTATION: 100 };
const MOST_OBJECTS = 300;
const AT_ONCE = 2;

export function picturePart({ root, go, catalogue, model, fault, area }) {
  const seen = viewer({ label: words.pictures });
  const list = recordList({ onhover: (index) => seen.choose(index) });
  const form = parameterForm(model, { onnarrow: refresh, onask: () => ask(session.pictures, true), onslide: slide });
  const status = make("p", { class: "hint", role: "status" });
  const legend = make("div", { class: "legend", role: "group", "aria-label": words.labels });
  const pictures = gallery({
    root,
    area,
    samples: catalogue.samples,
    fault,
    onshow: display,
    onnew: ask,
    onsample: (sample) => go("try", { model: model.name, sample }),
  });
  const located = model.task_type !== "IMAGE_CLASSIFICATION";
  const most = MOST[model.task_type] ?? MOST_OBJECTS;
  // The answer of each image: { records, shapes, milliseconds }; null after an error.
  let answers = new Map();
  // Answers without NMS, of images that were shown while the IoU slider moved.
  const loose = new Map();
  let looseFor = "";
  let hidden = new Set();
  let asking = new AbortController();

  seen.onhover = (index) => list.choose(index);

  async function ask(all, again = false) {
    asking.abort();
    asking = new AbortController();
    const { signal } = asking;
    // With new parameters, keep the old answers visible until new ones arrive.
    if (!again) answers = new Map();
    const others = JSON.stringify(form.others());
    if (others !== looseFor) loose.clear();
    looseFor = others;
    fault.clear();
    refresh();
    const waiting = [...all];
    const worker = async () => {
      for (let picture = waiting.shift(); picture && !signal.aborted; picture = waiting.shift()) {
        await askAbout(picture, signal);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
  }

  async function found(picture, overlapping, signal) {
    const { top_k, ...parameters } = { ...form.others(), ...overlapping };
    parameters.score_threshold = located ? Math.min(FAINT, model.parameters.score_threshold.default) : 0;
    if (located) parameters.top_k = most;
    const { outputs, milliseconds } = await infer({ root, catalogue, model, data: [picture], parameters, signal });
    const shapes = shapesOf(model.task_type, outputs[0], picture.width, picture.height);
    return { records: outputs[0], shapes, milliseconds };
  }

  async function slide() {
    const picture = pictures.shown();
    if (picture !== null && !loose.has(picture)) {
      loose.set(picture, null);
      loose.set(picture, await found(picture, { iou_threshold: LOOSE }).catch(() => null));
    }
    refresh();
  }

  async function askAbout(picture, signal) {
    try {
      answers.set(picture, await found(picture, form.overlap(), signal));
    } catch (error) {
      if (error.name === "AbortError") return;
      fault.fail(session.pictures.length > 1 ? `${picture.name}: ${error.message}` : error.message);
      answers.set(picture, null);
    }
    refresh();
  }

  const answerFor = (picture) => (form.sliding() && loose.get(picture)) || answers.get(picture);

  // The filtered answer of an image: shapes, or records with their index for a classifier.
  function left(picture) {
    const answer = answerFor(picture);
    if (!answer) return [];
    const all = located ? answer.shapes : answer.records.map((record, index) => ({ ...record, index }));
    const narrowed = narrow(all, { ...form.narrowing(), most: Infinity });
    return narrowed.filter((result) => !hidden.has(result.label)).slice(0, form.narrowing().most);
  }

  function refresh() {
    session.parameters = form.asked();
    const picture = pictures.shown();
    const answer = answerFor(picture);
    const kept = left(picture);
    seen.shapes(located && picture?.width ? kept : []);
    list.show(kept);
    for (const image of answers.keys())
      pictures.mark(image, located ? String(left(image).length) : (left(image)[0]?.label ?? ""));
    downloads.hidden = !answer;
    if (picture === null) say(status, "");
    else if (answer === undefined) say(status, words.running);
    else if (answer === null) say(status, "");
    else tell(answer, kept.length);
    if (located) showLegend(answer);
  }

  function tell({ records, milliseconds }, number) {
    const parts = [words.found(number, records.length, Math.round(milliseconds))];
    if (!number) parts.push(words.none);
    if (located && records.length >= most) parts.push(words.cut(most));
    if (parts.length > 1) parts[0] += ".";
    say(status, parts.join(" "));
  }

  // A button for each label in the answer, which hides it.
  function showLegend(answer) {
    const counted = new Map();
    for (const { label } of narrow(answer?.shapes ?? [], form.narrowing()))
      counted.set(label, (counted.get(label) ?? 0) + 1);
    for (const label of hidden) counted.set(label, counted.get(label) ?? 0);
    const names = [...counted.keys()].sort();
    const now = names.map((label) => words.hide(label, counted.get(label))).join();
    if (now === [...legend.children].map((child) => child.textContent).join()) return;
    legend.replaceChildren(
      ...names.map((label) => {
        const toggle = button(words.hide(label, counted.get(label)), () => {
          if (!hidden.delete(label)) hidden.add(label);
          toggle.setAttribute("aria-pressed", !hidden.has(label));
          refresh();
        });
        toggle.setAttribute("aria-pressed", !hidden.has(label));
        toggle.title = label;
        return toggle;
      }),
    );
  }

  function display(picture) {
    seen.show(picture);
    seen.element
      .querySelector(".stage")
      .setAttribute("aria-label", picture ? words.shown(picture.name) : words.pictures);
    stage.hidden = picture === null;
    if (picture !== null && !picture.width) fault.tell(words.notShown);
    refresh();
  }

  function told() {
    return session.pictures
      .filter((picture) => answers.get(picture))
      .map((picture) => {
        const { records, shapes } = answers.get(picture);
        const kept = left(picture);
        return { picture, shapes: located ? kept : shapes, records: kept.map(({ index }) => records[index]) };
      });
  }

  const stem = () => (pictures.shown()?.name ?? model.name).replace(/\.[^.]*$/, "");
  const downloads = make(
    "div",
    { class: "row", role: "group", "aria-label": words.download, hidden: "" },
    make("span", { class: "hint" }, words.download),
    button(words.json, () => save(written(model, form.asked(), told()), `${stem()}.json`)),
  );
  if (located) {
    downloads.append(
      button(words.png, async () => save(await toPng(pictures.shown(), left(pictures.shown())), `${stem()}.found.png`)),
      button(words.coco, () => save(coco(model, told()), `${stem()}.coco.json`)),
    );
  }
  downloads.append(button(words.look, () => go("request", { model: model.name })));
  const stage = make("div", { hidden: "" }, seen.element);
  const side = make(
    "section",
    { class: "panel side", "aria-label": words.results },
    form.element,
    status,
    legend,
    list.element,
    downloads,
  );

  return trialOf({ pictures, stage, side, seen, stop: () => asking.abort() });
}
