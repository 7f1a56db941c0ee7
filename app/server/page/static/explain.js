// The Explain view: which parts of an image cause each result.

import { choices } from "./catalogue.js";
import { button, choice, field, save, slider } from "./controls.js";
import { deskView } from "./model_view.js";
import { make, say } from "./dom.js";
import { colourOf, shapesOf } from "./drawing.js";
import { percent } from "./format.js";
import { picker } from "./image_input.js";
import { base64Of, sampleFor } from "./images.js";
import { GRADIENT, coloured, toOverlaidPng } from "./saliency.js";
import { session } from "./session.js";
import { text } from "./text.js";
import { viewer } from "./viewer.js";

const words = text.explain;
const ID = "explain";
const DEFAULTS = { method: "rise", samples: "400", grid: "8", seed: "0", label: "" };

export const explain = deskView({
  id: ID,
  title: words.title,
  none: words.none,
  able: (catalogue) => choices(catalogue).filter((model) => model.explains),
  desk: deskOf,
});

function deskOf({ main, work, tools, catalogue, models: able, said, told }) {
  const view = viewer({ label: words.picture });
  const source = picker(main, { root: tools.root, samples: catalogue.samples, onpicture: take, onfault: said.fail });
  const model = choice(
    able.map((model) => [model.name, model.name]),
    () => reset(true),
  );
  const method = choice(Object.entries(words.methods), () =>
    samples.closest(".field").toggleAttribute("hidden", method.value !== "rise"),
  );
  const samples = make("input", { type: "number", min: 1, max: 100000, required: "" });
  const grid = make("input", { type: "number", min: 2, max: 32, required: "" });
  const seed = make("input", { type: "number", min: 0, max: 4294967295, required: "" });
  const label = choice([], () => {});
  const run = make("button", { class: "main", type: "submit" }, words.run);
  const stop = button(words.stop, () => asking?.abort());
  const clock = make("span", { class: "hint" });
  const opacity = slider({
    label: words.opacity,
    value: 0.6,
    oninput: paint,
    format: (value) => percent(100 * value).replace(".0", ""),
  });
  const list = make("div", { class: "reasons", role: "radiogroup", "aria-label": words.findings });
  const png = button(words.png, () => download());
  const about = make("p", { class: "hint" });
  const legend = make("div", { class: "legend-bar", "aria-hidden": "true" });
  legend.style.background = GRADIENT;
  const results = make(
    "section",
    { class: "panel results", "aria-label": words.findings, hidden: "" },
    make("h2", {}, words.findings),
    list,
    opacity.element,
    make(
      "div",
      { class: "legend-of", "aria-hidden": "true" },
      make("span", {}, words.little),
      legend,
      make("span", {}, words.much),
    ),
    about,
    make("div", { class: "acts" }, png),
  );
  const form = make(
    "form",
    { class: "panel form" },
    make("div", { class: "wide" }, field(words.model, model)),
    make("div", { class: "wide" }, field(words.method, method)),
    field(words.samples, samples, words.samplesHint),
    field(words.grid, grid, words.gridHint),
    field(words.seed, seed),
    field(words.label, label),
    make("div", { class: "acts" }, run, stop, clock),
  );
  let [picture, sample, asking, found, maps, shown, settled] = [null, "", null, null, [], 0, null];
  let warning = "";
  stop.hidden = true;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  work.replaceChildren(
    make(
      "div",
      { class: "desk" },
      make("div", { class: "stand" }, source.element, view.element),
      make("div", { class: "side" }, form, results),
    ),
  );

  const current = () => able.find(({ name }) => name === model.value);

  function reset(relabel) {
    [found, maps] = [null, []];
    results.hidden = true;
    view.overlay(null, 0);
    view.shapes([]);
    if (!relabel) return;
    const { labels, task_type: task } = current();
    label.fill([
      ["", task === "IMAGE_CLASSIFICATION" ? words.best : words.every],
      ...labels.map((name) => [name, name]),
    ]);
  }

  function take(next, from) {
    asking?.abort();
    [picture, sample] = [next, from];
    session.pictures = [next];
    said.fail(warning);
    view.show(next);
    reset(false);
  }

  function written() {
    const values = {
      method: method.value,
      samples: samples.value,
      grid: grid.value,
      seed: seed.value,
      label: label.value,
    };
    const changed = Object.entries(values).filter(([key, value]) => value !== DEFAULTS[key]);
    return {
      values,
      address: { model: model.value, ...(sample ? { image: sample } : {}), ...Object.fromEntries(changed) },
    };
  }

  async function ask() {
    if (picture === null) {
      said.fail(words.noPicture);
      return;
    }
    const { values, address } = written();
    settled = new URLSearchParams(address).toString();
    tools.go(ID, address);
    asking?.abort();
    const mine = (asking = new AbortController());
    const began = performance.now();
    const timer = setInterval(() => say(clock, words.seconds((performance.now() - began) / 1000)), 100);
    warning = "";
    said.clear();
    reset(false);
    wait(true);
    say(told, words.working);
    try {
      const answer = await explained(values, mine.signal);
      const ready = await Promise.all(answer.explanations[0].map((explanation) => coloured(explanation.saliency.png)));
      if (mine !== asking) return;
      show(answer, ready, (performance.now() - began) / 1000);
    } catch (error) {
      if (mine !== asking) return;
      say(told, error.name === "AbortError" ? words.stopped : "");
      if (error.name !== "AbortError") said.fail(error.message);
    } finally {
      clearInterval(timer);
      if (mine === asking) wait(false);
    }
  }

  function wait(waiting) {
    run.hidden = waiting;
    stop.hidden = !waiting;
    say(clock, "");
    // Do not scroll: on a phone the form is far below the image.
    if (waiting) stop.focus({ preventScroll: true });
    else if (document.activeElement === document.body) run.focus({ preventScroll: true });
  }

  async function explained({ method: way, samples: number, grid: cells, seed: start, label: wanted }, signal) {
    const parameters = { method: way, grid: Number(cells), seed: Number(start) };
    if (way === "rise") parameters.samples = Number(number);
    if (wanted) parameters.label = wanted;
    const body = JSON.stringify({ instances: [{ b64: await base64Of(picture.blob) }], parameters });
    const url = new URL(`v1/models/${encodeURIComponent(model.value)}:explain`, tools.root);
    const headers = { "Content-Type": "application/json" };
    const response = await fetch(url, { method: "POST", headers, body, signal }).catch((error) => {
      throw error.name === "AbortError" ? error : new Error(words.unreachable);
    });
    const answer = await response.json().catch((error) => {
      if (error.name === "AbortError") throw error;
      return {};
    });
    if (!response.ok) throw new Error(answer.error ?? words.refused(response.status));
    return answer;
  }

  function show(answer, ready, seconds) {
    [found, maps] = [answer, ready];
    const all = answer.explanations[0];
    results.hidden = false;
    say(told, all.length ? words.done(all.length, seconds) : words.nothing);
    opacity.element.hidden = png.hidden = !all.length;
    legend.parentElement.hidden = !all.length;
    say(about, all.length ? words.about(all[0].method, all[0].samples) : words.nothing);
    list.replaceChildren(...all.map((explanation, place) => entry(explanation, place)));
    if (all.length) choose(0);
  }

  function entry({ label: name, score }, place) {
    const input = make("input", { type: "radio", name: "explanation", value: place });
    const key = make("span", { class: "swatch" });
    key.style.background = colourOf(name);
    input.addEventListener("change", () => choose(place));
    return make(
      "label",
      {},
      input,
      key,
      make("span", { class: "named" }, name),
      make("span", { class: "number" }, percent(100 * score)),
    );
  }

  function choose(place) {
    shown = place;
    list.querySelectorAll("input")[place].checked = true;
    paint();
    view.shapes(shapes());
  }

  function shapes() {
    const record = found.predictions[0][found.explanations[0][shown].index];
    return record === undefined ? [] : shapesOf(current().task_type, [record], picture.width, picture.height);
  }

  function paint() {
    if (maps[shown]) view.overlay(maps[shown], opacity.value());
  }

  async function download() {
    const name = `${picture.name.replace(/\.[^.]*$/, "")}-${found.explanations[0][shown].label}.png`;
    save(await toOverlaidPng(picture, maps[shown], opacity.value(), shapes()), name);
  }

  return {
    change(parameters) {
      if (parameters.toString() === settled) return;
      settled = parameters.toString();
      const known = (name) => able.some((model) => model.name === name);
      const name = parameters.get("model") ?? session.model;
      model.value = known(name) ? name : able[0].name;
      // Keep the warning visible with the first image, which is for another model.
      warning = parameters.has("model") && !known(name) ? words.unknown(name) : "";
      said.fail(warning);
      const value = (key) => parameters.get(key) ?? DEFAULTS[key];
      [samples.value, grid.value, seed.value] = ["samples", "grid", "seed"].map(value);
      method.value = value("method") in words.methods ? value("method") : DEFAULTS.method;
      method.dispatchEvent(new Event("change"));
      reset(true);
      label.value = value("label");
      if (label.value !== value("label")) label.value = "";
      const image = parameters.get("image");
      if (image) {
        source.sample(image).then(() => sample === image && !warning && ask());
      } else if (picture === null && session.pictures[0]?.width) {
        source.take(session.pictures[0]);
      } else if (picture === null) {
        const first = sampleFor(catalogue, current().task_type);
        if (first) source.sample(first);
      }
    },
    close() {
      asking?.abort();
      source.close();
      view.close();
    },
  };
}
