// The Recorded view: search recorded inferences by time, model, label, metadata and location.

import { summaryOf } from "./batch_row.js";
import { requestJson } from "./connection.js";
import { fetchCatalogue } from "./catalogue.js";
import { button, choice, field, notice } from "./controls.js";
import { make, setText } from "./dom.js";
import { milliseconds, percent } from "./format.js";
import { colourOf } from "./palette.js";
import { showRecording } from "./recording_dialog.js";
import { text } from "./text.js";

const strings = text.recorded;
const ID = "recorded";
const PAGE_SIZE = 50;
const TEXT_FILTERS = ["model", "label", "min-score", "since", "until"];
const WIDE_FILTERS = ["where", "box"];

export const recorded = { id: ID, title: strings.title, open };

function open(main, tools) {
  const message = notice();
  const status = make("p", { class: "hint", role: "status" });
  const inputs = Object.fromEntries(
    [...TEXT_FILTERS, ...WIDE_FILTERS].map((key) => [
      key,
      make("input", { type: "text", autocomplete: "off", placeholder: strings.hints[key] ?? "" }),
    ]),
  );
  const error = choice(Object.entries(strings.errors), () => {});
  const form = make(
    "form",
    { class: "filters", role: "search" },
    ...TEXT_FILTERS.map((key) => field(strings.filters[key], inputs[key])),
    field(strings.filters.error, error),
    ...WIDE_FILTERS.map((key) =>
      make("div", { class: "wide" }, field(strings.filters[key], inputs[key], strings.explanations[key])),
    ),
    make(
      "div",
      { class: "actions" },
      make("button", { class: "primary", type: "submit" }, strings.search),
      button(strings.clear, () => tools.go(ID, {})),
    ),
  );
  const filterPanel = make("details", { class: "panel" }, make("summary", {}, strings.filterTitle), form);
  const body = make("tbody");
  const headings = Object.entries(strings.columns).map(([key, label]) =>
    make("th", { scope: "col", class: `col-${key}` }, label),
  );
  const table = make("table", { class: "text-table recorded" }, make("thead", {}, make("tr", {}, ...headings)), body);
  const older = button(strings.showOlder, () => load(next));
  const empty = make("p", { class: "hint", hidden: "" }, strings.none);
  const results = make(
    "section",
    { class: "panel", "aria-label": strings.results },
    make("div", { class: "scrollable" }, table),
    empty,
    older,
  );
  const heading = make("div", { class: "heading" }, make("h1", {}, strings.title), status);
  main.append(heading, message.element, filterPanel, results);
  const catalogue = fetchCatalogue(tools.root).catch(() => null);
  let [query, inferences, next, pending, dialog] = ["", [], null, null, null];

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    tools.go(ID, readFilters());
  });

  function readFilters() {
    const values = Object.entries(inputs).map(([key, input]) => [key, input.value.trim()]);
    return Object.fromEntries([...values, ["error", error.value]].filter(([, value]) => value));
  }

  async function load(after) {
    pending?.abort();
    const thisRequest = (pending = new AbortController());
    const url = new URL(`inferences?${query}`, tools.root);
    url.searchParams.set("limit", PAGE_SIZE);
    if (after) url.searchParams.set("after", after);
    message.clear();
    setText(status, strings.searching);
    older.hidden = true;
    try {
      const answer = await requestJson(url, { signal: thisRequest.signal });
      if (thisRequest !== pending) return;
      show(answer, Boolean(after));
    } catch (failure) {
      if (thisRequest !== pending || failure.name === "AbortError") return;
      setText(status, "");
      message.showError(failure);
      if (after) return;
      show({ inferences: [], next: null }, false);
      setText(status, "");
      empty.hidden = true;
    }
  }

  function show(answer, append) {
    const first = append ? inferences.length : 0;
    inferences = append ? [...inferences, ...answer.inferences] : answer.inferences;
    next = answer.next;
    const rows = answer.inferences.map((inference, index) => createRow(inference, first + index));
    if (append) body.append(...rows);
    else body.replaceChildren(...rows);
    table.hidden = !inferences.length;
    empty.hidden = inferences.length > 0;
    older.hidden = next === null;
    setText(status, strings.counted(inferences.length, next !== null));
    if (append) rows[0]?.querySelector("button").focus();
  }

  function createRow(inference, index) {
    const openButton = button(strings.time(inference.started), () => openAt(index), "link");
    const cell = (key, ...content) => make("td", { class: `col-${key}` }, ...content);
    const { content, score } = summarise(inference);
    return make(
      "tr",
      inference.error ? { class: "failed" } : {},
      make("th", { scope: "row", class: "col-time" }, openButton),
      cell("model", inference.model),
      cell("label", ...content),
      cell("score", score === null ? "–" : percent(100 * score)),
      cell("duration", milliseconds(inference.duration / 1000)),
      cell("metadata", inference.metadata.map(({ key, value }) => `${key} = ${strings.value(value)}`).join(", ")),
    );
  }

  function summarise({ error: errorKind, message, task_type: task, records }) {
    if (errorKind) return { content: [message || errorKind], score: null };
    if (!records?.length || records[0].label === undefined || records[0].score === undefined) {
      return {
        content: [make("span", { class: "hint" }, records?.length ? strings.answers(records.length) : strings.nothing)],
        score: null,
      };
    }
    const summary = summaryOf(task, records, 0);
    const swatch = make("span", { class: "swatch" });
    swatch.style.background = colourOf(summary.labels[0]);
    return { content: [swatch, make("span", { class: "truncated" }, summary.shown)], score: summary.score };
  }

  // Put the opened inference into the address without a history entry.
  async function openAt(index) {
    const inference = inferences[index];
    saveAddress(inference.id);
    dialog = showRecording(main, tools.root, inference, {
      newer: index > 0 ? () => openAt(index - 1) : null,
      older: index < inferences.length - 1 ? () => openAt(index + 1) : null,
      onclose() {
        saveAddress("");
        body.rows[index]?.querySelector("button").focus();
      },
    });
  }

  function saveAddress(id) {
    const parameters = new URLSearchParams(query);
    if (id) parameters.set("id", id);
    tools.save(parameters);
  }

  async function openById(id) {
    const options = { newer: null, older: null, onclose: () => saveAddress("") };
    try {
      const answer = await requestJson(new URL(`inferences/${encodeURIComponent(id)}`, tools.root));
      dialog = showRecording(main, tools.root, answer, options);
    } catch (failure) {
      message.showError(failure);
    }
  }

  return {
    change(parameters) {
      dialog?.close();
      const id = parameters.get("id");
      parameters.delete("id");
      query = parameters.toString();
      for (const [key, input] of Object.entries(inputs)) input.value = parameters.getAll(key).join(" and ");
      error.value = parameters.get("error") ?? "";
      // On a phone the filters would fill the screen.
      filterPanel.open ||= query !== "" || window.innerWidth > 700;
      // Labels have the colours that they have in the other views.
      catalogue.then(() => load(null)).then(() => id && openById(id));
    },
    close() {
      pending?.abort();
      dialog?.close();
    },
  };
}
