// The Compare view: results of two models, or of one model at two thresholds, side by side.

import { choices, sortOf } from "./catalogue.js";
import { choice, field, slider } from "./controls.js";
import { deskView } from "./model_view.js";
import { make, say } from "./dom.js";
import { colourOf, narrow, overlap, shapesOf } from "./drawing.js";
import { milliseconds, percent } from "./format.js";
import { infer } from "./inference.js";
import { picker } from "./image_input.js";
import { sampleFor } from "./images.js";
import { session } from "./session.js";
import { text } from "./text.js";
import { viewer } from "./viewer.js";

const words = text.compare;
const ID = "compare";
const SIDES = ["a", "b"];
// Request low scores too: the sliders only filter the received answer.
const LOWEST = 0.05;
const SAME = 0.5;

export const compare = deskView({
  id: ID,
  title: words.title,
  none: words.none,
  able: (catalogue) => choices(catalogue).filter((model) => sortOf(model.task_type) === "picture"),
  desk: deskOf,
});

function finds(model) {
  return model.task_type !== "IMAGE_CLASSIFICATION";
}

// The results of a model above a threshold: shapes, or records for a classifier.
function found(model, records, score, picture) {
  if (!finds(model)) return records.filter((record) => record.score >= score);
  return narrow(shapesOf(model.task_type, records, picture.width, picture.height), { score });
}

// Match two lists by label, highest overlap first. Return [left, right, iou], with null for a missing partner.
export function pairs(ones, others, placed) {
  const candidates = [];
  for (const one of ones) {
    for (const other of others) {
      if (one.label !== other.label) continue;
      const iou = placed ? overlap(one, other) : 1;
      if (iou >= SAME) candidates.push([one, other, iou]);
    }
  }
  candidates.sort((left, right) => right[2] - left[2]);
  const taken = new Set();
  const both = candidates.filter(([one, other]) => {
    if (taken.has(one) || taken.has(other)) return false;
    taken.add(one).add(other);
    return true;
  });
  const alone = (all) => all.filter((shape) => !taken.has(shape));
  const rows = [
    ...both,
    ...alone(ones).map((shape) => [shape, null, null]),
    ...alone(others).map((shape) => [null, shape, null]),
  ];
  const best = ([one, other]) => Math.max(one?.score ?? 0, other?.score ?? 0);
  return rows.sort((left, right) => best(right) - best(left));
}

function deskOf({ main, work, tools, catalogue, models: able, said, told }) {
  const source = picker(main, { root: tools.root, samples: catalogue.samples, onpicture: take, onfault: said.fail });
  const sides = Object.fromEntries(SIDES.map((id) => [id, sideOf(id)]));
  const body = make("tbody");
  const heads = words.columns.map((heading) => make("th", { scope: "col" }, heading));
  const table = make("table", { class: "words compared" }, make("thead", {}, make("tr", {}, ...heads)), body);
  const verdict = make("p", { class: "hint" });
  const results = make(
    "section",
    { class: "panel", "aria-label": words.differences },
    make("h2", {}, words.differences),
    verdict,
    make("div", { class: "scrolls" }, table),
  );
  let [picture, sample, asking, warning] = [null, "", null, ""];
  work.replaceChildren(
    make("div", { class: "panel" }, source.element),
    make("div", { class: "sides" }, ...SIDES.map((id) => sides[id].element)),
    results,
  );
  for (const id of SIDES) {
    const other = sides[SIDES.find((side) => side !== id)];
    sides[id].view.onplace = (place) => other.view.restore(place);
  }

  function sideOf(id) {
    const view = viewer({ label: words.pictureOf[id] });
    const model = choice(
      able.map((model) => [model.name, model.name]),
      () => {
        reset(id);
        ask();
      },
    );
    const score = slider({ label: words.score, min: LOWEST, max: 1, value: 0.5, oninput: () => show() });
    const time = make("p", { class: "hint" });
    const element = make(
      "section",
      { class: "panel compared-side", "aria-label": words.sides[id] },
      make("div", { class: "row" }, field(words.models[id], model), score.element),
      view.element,
      time,
    );
    return {
      id,
      view,
      model,
      score,
      time,
      element,
      records: null,
      current: () => able.find(({ name }) => name === model.value),
    };
  }

  function reset(id) {
    const side = sides[id];
    const own = side.current().parameters.score_threshold?.default;
    side.score.set(Math.max(LOWEST, own || 0.5));
    side.records = null;
  }

  function take(next, from) {
    [picture, sample] = [next, from];
    session.pictures = [next];
    for (const id of SIDES) {
      sides[id].records = null;
      sides[id].view.show(next);
    }
    ask();
  }

  // If both sides have the same model, one request serves both.
  async function ask() {
    keep();
    if (picture === null) return;
    asking?.abort();
    const mine = (asking = new AbortController());
    said.fail(warning);
    warning = "";
    say(told, words.working);
    const names = new Set(SIDES.filter((id) => sides[id].records === null).map((id) => sides[id].model.value));
    try {
      for (const name of names) {
        const model = able.find((model) => model.name === name);
        const parameters = model.parameters.score_threshold ? { score_threshold: LOWEST } : {};
        const answer = await infer({
          root: tools.root,
          catalogue,
          model,
          data: [picture],
          parameters,
          signal: mine.signal,
        });
        if (mine !== asking) return;
        for (const id of SIDES) {
          if (sides[id].model.value !== name) continue;
          sides[id].records = answer.outputs[0];
          say(sides[id].time, words.answered(milliseconds(answer.milliseconds)));
        }
      }
      show();
    } catch (error) {
      if (mine !== asking || error.name === "AbortError") return;
      say(told, "");
      said.fail(error.message);
    }
  }

  // Replace the history entry, so that Back does not go through every slider position.
  function keep() {
    const query = { ...(sample ? { image: sample } : {}) };
    for (const id of SIDES) {
      query[id] = sides[id].model.value;
      query[`score_${id}`] = sides[id].score.value();
    }
    history.replaceState(null, "", `#${ID}?${new URLSearchParams(query)}`);
  }

  function show() {
    keep();
    if (SIDES.some((id) => sides[id].records === null)) return;
    const left = SIDES.map((id) => found(sides[id].current(), sides[id].records, sides[id].score.value(), picture));
    SIDES.forEach((id, place) => sides[id].view.shapes(placed(sides[id]) ? left[place] : []));
    const [one, other] = SIDES.map((id) => placed(sides[id]));
    const comparable = one === other;
    const rows = comparable ? pairs(...left, one) : [];
    table.hidden = !rows.length;
    body.replaceChildren(...rows.map((row) => rowOf(row, one)));
    table.classList.toggle("unplaced", !one);
    const count = (test) => rows.filter(test).length;
    const sentence = words.verdict(
      count(([a, b]) => a && b),
      count(([, b]) => !b),
      count(([a]) => !a),
    );
    say(told, rows.length ? sentence : "");
    say(verdict, rows.length ? "" : comparable ? words.nothing : words.incomparable);
  }

  function placed(side) {
    return finds(side.current());
  }

  // Another model with common labels, or the same model.
  function rivalOf(model) {
    const others = able.filter((candidate) => candidate !== model && finds(candidate) === finds(model));
    return others.find((candidate) => candidate.labels.some((label) => model.labels.includes(label))) ?? model;
  }

  function rowOf([one, other, iou], shown) {
    const key = make("span", { class: "swatch" });
    const { label } = one ?? other;
    key.style.background = colourOf(label);
    // A button, so that the keyboard can highlight shapes as the pointer does.
    const button = make("button", { type: "button", class: "link inked" }, label);
    const difference = one && other ? words.signed(100 * (other.score - one.score)) : one ? words.only.a : words.only.b;
    const score = (shape) => (shape ? percent(100 * shape.score) : "–");
    const row = make(
      "tr",
      one && other ? {} : { class: "alone" },
      make("th", { scope: "row" }, key, button),
      make("td", {}, score(one)),
      make("td", {}, score(other)),
      make("td", {}, difference),
      make("td", { class: "of-iou" }, shown && iou !== null ? iou.toFixed(2) : "–"),
    );
    const point = (on) => {
      sides.a.view.choose(on ? (one?.index ?? null) : null);
      sides.b.view.choose(on ? (other?.index ?? null) : null);
      row.classList.toggle("chosen", on);
    };
    for (const event of ["pointerenter", "focusin"]) row.addEventListener(event, () => point(true));
    for (const event of ["pointerleave", "focusout"]) row.addEventListener(event, () => point(false));
    return row;
  }

  return {
    change(parameters) {
      const known = (name) => able.some((model) => model.name === name);
      const lost = SIDES.map((id) => parameters.get(id)).find((name) => name !== null && !known(name));
      const first = able.find((model) => model.name === session.model) ?? able.find(finds) ?? able[0];
      for (const id of SIDES) {
        const name = parameters.get(id);
        sides[id].model.value = known(name) ? name : (id === "b" ? rivalOf(first) : first).name;
        reset(id);
        const score = Number.parseFloat(parameters.get(`score_${id}`));
        if (score >= LOWEST && score <= 1) sides[id].score.set(score);
      }
      // Two equal sides would show no difference.
      if (!parameters.has("b") && sides.a.model.value === sides.b.model.value) {
        sides.b.score.set(Math.min(0.95, sides.a.score.value() + 0.3));
      }
      // Keep the warning visible with the first answer, which is of another model.
      warning = lost === undefined ? "" : words.unknown(lost);
      said.fail(warning);
      const image = parameters.get("image");
      if (image) source.sample(image);
      else if (picture !== null) ask();
      else if (session.pictures[0]?.width) {
        source.take(session.pictures[0]);
      } else {
        const sampled = sampleFor(catalogue, sides.a.current().task_type);
        if (sampled) source.sample(sampled);
      }
    },
    close() {
      asking?.abort();
      source.close();
      for (const id of SIDES) sides[id].view.close();
    },
  };
}
