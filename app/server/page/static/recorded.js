// The Recorded view: search recorded inferences by time, model, label, metadata and location.

import { summaryOf } from "./batch_row.js";
import { button, choice, field, notice } from "./controls.js";
import { make, say } from "./dom.js";
import { colourOf } from "./drawing.js";
import { milliseconds, percent } from "./format.js";
import { inspect } from "./recording_dialog.js";
import { text } from "./text.js";

const words = text.recorded;
const ID = "recorded";
const PAGE = 50;
const PLAIN = ["model", "label", "min-score", "since", "until"];
const PLACES = ["near", "box", "polygon"];

export const recorded = { id: ID, title: words.title, open };

function open(main, tools) {
  const said = notice();
  const told = make("p", { class: "hint", role: "status" });
  const inputs = Object.fromEntries(
    PLAIN.map((key) => [
      key,
      make("input", { type: "text", autocomplete: "off", placeholder: words.hints[key] ?? "" }),
    ]),
  );
  const error = choice(Object.entries(words.errors), () => {});
  const where = make("input", { type: "text", autocomplete: "off", placeholder: words.hints.where });
  const shape = choice(Object.entries(words.shapes), () => shaped());
  const place = make("input", { type: "text", autocomplete: "off" });
  const placed = field(words.place, place);
  const form = make(
    "form",
    { class: "filters", role: "search" },
    ...PLAIN.map((key) => field(words.filters[key], inputs[key])),
    field(words.filters.error, error),
    make("div", { class: "wide" }, field(words.filters.where, where, words.whereHint)),
    field(words.filters.shape, shape),
    make("div", { class: "wide" }, placed),
    make(
      "div",
      { class: "acts" },
      make("button", { class: "main", type: "submit" }, words.find),
      button(words.clear, () => tools.go(ID, {})),
    ),
  );
  const folded = make("details", { class: "panel" }, make("summary", {}, words.filtering), form);
  const body = make("tbody");
  const heads = Object.entries(words.columns).map(([key, label]) =>
    make("th", { scope: "col", class: `of-${key}` }, label),
  );
  const table = make("table", { class: "words recorded" }, make("thead", {}, make("tr", {}, ...heads)), body);
  const older = button(words.older, () => load(next));
  const empty = make("p", { class: "hint", hidden: "" }, words.none);
  const results = make(
    "section",
    { class: "panel", "aria-label": words.results },
    make("div", { class: "scrolls" }, table),
    empty,
    older,
  );
  main.append(make("div", { class: "heading" }, make("h1", {}, words.title), told), said.element, folded, results);
  let [query, found, next, asking, shown] = ["", [], null, null, null];

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    tools.go(ID, written());
  });

  function shaped() {
    placed.parentElement.hidden = !shape.value;
    place.placeholder = words.hints[shape.value] ?? "";
  }

  function written() {
    const values = Object.fromEntries(PLAIN.map((key) => [key, inputs[key].value.trim()]));
    if (shape.value) values[shape.value] = place.value.trim();
    const all = { ...values, error: error.value, where: where.value.trim() };
    return Object.fromEntries(Object.entries(all).filter(([, value]) => value));
  }

  async function load(after) {
    asking?.abort();
    const mine = (asking = new AbortController());
    const url = new URL(`inferences?${query}`, tools.root);
    url.searchParams.set("limit", PAGE);
    if (after) url.searchParams.set("after", after);
    said.clear();
    say(told, words.looking);
    older.hidden = true;
    try {
      const response = await fetch(url, { signal: mine.signal }).catch((fault) => {
        throw fault.name === "AbortError" ? fault : new Error(words.unreachable);
      });
      const answer = await response.json().catch(() => ({}));
      if (mine !== asking) return;
      if (!response.ok) throw new Error(answer.error ?? words.refused(response.status));
      show(answer, Boolean(after));
    } catch (fault) {
      if (mine !== asking || fault.name === "AbortError") return;
      say(told, "");
      said.fail(fault.message);
      if (after) return;
      show({ inferences: [], next: null }, false);
      say(told, "");
      empty.hidden = true;
    }
  }

  function show(answer, more) {
    const first = more ? found.length : 0;
    found = more ? [...found, ...answer.inferences] : answer.inferences;
    next = answer.next;
    const rows = answer.inferences.map((inference, index) => rowOf(inference, first + index));
    if (more) body.append(...rows);
    else body.replaceChildren(...rows);
    table.hidden = !found.length;
    empty.hidden = found.length > 0;
    older.hidden = next === null;
    say(told, words.counted(found.length, next !== null));
    if (more) rows[0]?.querySelector("button").focus();
  }

  function rowOf(inference, index) {
    const opener = button(words.time(inference.started), () => inspectAt(index), "link");
    const cell = (key, ...content) => make("td", { class: `of-${key}` }, ...content);
    const { told: what, score } = summaryIn(inference);
    return make(
      "tr",
      inference.error ? { class: "failed" } : {},
      make("th", { scope: "row", class: "of-time" }, opener),
      cell("model", inference.model),
      cell("label", ...what),
      cell("score", score === null ? "–" : percent(100 * score)),
      cell("took", milliseconds(inference.duration / 1000)),
      cell("metadata", inference.metadata.map(({ key, value }) => `${key} = ${words.value(value)}`).join(", ")),
    );
  }

  function summaryIn({ error: kind, message, task_type: task, records }) {
    if (kind) return { told: [message || kind], score: null };
    if (!records?.length || records[0].label === undefined || records[0].score === undefined) {
      return {
        told: [make("span", { class: "hint" }, records?.length ? words.answers(records.length) : words.nothing)],
        score: null,
      };
    }
    const summary = summaryOf(task, records, 0);
    const key = make("span", { class: "swatch" });
    key.style.background = colourOf(summary.labels[0]);
    return { told: [key, make("span", { class: "brief" }, summary.shown)], score: summary.score };
  }

  // Put the opened inference into the address without a history entry.
  async function inspectAt(index) {
    const inference = found[index];
    mark(inference.id);
    shown = inspect(main, tools.root, inference, {
      newer: index > 0 ? () => inspectAt(index - 1) : null,
      older: index < found.length - 1 ? () => inspectAt(index + 1) : null,
      closed() {
        mark("");
        body.rows[index]?.querySelector("button").focus();
      },
    });
  }

  function mark(id) {
    const parameters = new URLSearchParams(query);
    if (id) parameters.set("id", id);
    history.replaceState(null, "", `#${ID}?${parameters}`);
  }

  async function openById(id) {
    const response = await fetch(new URL(`inferences/${encodeURIComponent(id)}`, tools.root)).catch(() => null);
    const answer = await response?.json().catch(() => null);
    if (response?.ok) shown = inspect(main, tools.root, answer, { newer: null, older: null, closed: () => mark("") });
    else said.fail(answer?.error ?? words.unreachable);
  }

  return {
    change(parameters) {
      shown?.close();
      const id = parameters.get("id");
      parameters.delete("id");
      query = parameters.toString();
      for (const key of PLAIN) inputs[key].value = parameters.get(key) ?? "";
      where.value = parameters.getAll("where").join(" and ");
      error.value = parameters.get("error") ?? "";
      shape.value = PLACES.find((shapeName) => parameters.has(shapeName)) ?? "";
      place.value = parameters.get(shape.value) ?? "";
      shaped();
      // On a phone the filters would fill the screen.
      folded.open ||= query !== "" || window.innerWidth > 700;
      load(null).then(() => id && openById(id));
    },
    close() {
      asking?.abort();
      shown?.close();
    },
  };
}
