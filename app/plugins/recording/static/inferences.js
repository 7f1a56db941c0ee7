// In Recorded: search inferences by time, model, label and metadata.

import { fetchCatalogue } from "./catalogue.js";
import { requestJson } from "./connection.js";
import { button, choice, disclosure, field, make, notice, setText, tableHead } from "./dom.js";
import { count, isolated, localTime, milliseconds, percent, valueText } from "./format.js";
import { swatch } from "./palette.js";
import { showRecording } from "./recording_dialog.js";
import { shortened, summaryOf } from "./results.js";

const VIEW = "recorded";
const PAGE_SIZE = 50;
// The reason of requests that this page sent.
const TRIAL = "trial";
// Limit texts and tensors in the table; the dialog shows more of them.
const MAX_TEXTS = 4;
const MAX_CHARACTERS = 160;
// By name of the query: the label, an example, and an explanation of the wide ones.
const TEXT_FILTERS = {
  model: ["Model", ""],
  label: ["Label", ""],
  "min-score": ["Min score", "0.5"],
  since: ["Since", "2h, 7d or 2026-11-05"],
  until: ["Until", "2026-11-06T12:00"],
};
const CONDITIONS = "Conditions on custom metadata, with =, <, <=, > and >=, joined by and";
const WIDE_FILTERS = {
  where: ["Metadata", 'camera = "north" and altitude > 100', CONDITIONS],
};
// By name of the query: the label, and the options.
const CHOICES = {
  error: ["Outcome", { "": "all", none: "succeeded", any: "failed" }],
  reason: ["Trials", { "": "all", "no-trial": "without", trial: "only" }],
  truth: ["Truth", { "": "all", yes: "known", wrong: "answer was wrong", no: "unknown" }],
};
const COLUMNS = {
  time: "Time",
  model: "Model",
  label: "Results",
  score: "Score",
  duration: "Duration",
  metadata: "Metadata",
};

export function extend(container, { main, tools }) {
  const message = notice();
  const status = make("p.hint", { role: "status" });
  const inputs = {};
  const fieldOf = ([key, [label, placeholder, hint]]) => {
    inputs[key] = make("input", { type: "text", autocomplete: "off", placeholder });
    const element = field(label, inputs[key], hint);
    element.classList.toggle("double", key in WIDE_FILTERS);
    return element;
  };
  const choiceOf = ([key, [label, options]]) => {
    inputs[key] = choice(Object.entries(options), () => {});
    return field(label, inputs[key]);
  };
  const form = make(
    "form.form",
    { role: "search" },
    ...Object.entries(TEXT_FILTERS).map(fieldOf),
    ...Object.entries(CHOICES).map(choiceOf),
    ...Object.entries(WIDE_FILTERS).map(fieldOf),
    make(
      "div.actions",
      make("button.primary", { type: "submit" }, "Search"),
      button("Clear", () => tools.go(VIEW, {})),
    ),
  );
  const active = make("span.hint");
  const body = make("tbody");
  const table = make("table.text-table.recorded", tableHead(COLUMNS), body);
  const older = button("Show older", () => load(next));
  const empty = make("p.hint", { hidden: "" }, "No recorded inference matches these filters.");
  const results = make(
    "section.panel",
    { "aria-label": "Recorded inferences" },
    make("div.heading", make("h2", "Inferences"), status),
    make("div.scrollable", table),
    empty,
    older,
  );
  container.append(disclosure("Filters", active, form), message.element, results);
  const catalogue = fetchCatalogue(tools.root).catch(() => null);
  let [query, inferences, next, pending, dialog] = ["", [], null, null, null];

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    tools.go(VIEW, readFilters());
  });

  function readFilters() {
    const values = Object.entries(inputs).map(([key, input]) => [key, input.value.trim()]);
    return Object.fromEntries(values.filter(([, value]) => value));
  }

  async function load(after) {
    pending?.abort();
    const thisRequest = (pending = new AbortController());
    const url = new URL(`inferences?${query}`, tools.root);
    url.searchParams.set("limit", PAGE_SIZE);
    if (after) url.searchParams.set("after", after);
    message.clear();
    setText(status, "Searching …");
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
      results.hidden = true;
    }
  }

  function show(answer, append) {
    const first = append ? inferences.length : 0;
    inferences = append ? [...inferences, ...answer.inferences] : answer.inferences;
    next = answer.next;
    const rows = answer.inferences.map((inference, index) => createRow(inference, first + index));
    if (append) body.append(...rows);
    else body.replaceChildren(...rows);
    results.hidden = false;
    table.hidden = !inferences.length;
    table.classList.toggle("gallery", inferences.some(({ image }) => image?.kept));
    empty.hidden = inferences.length > 0;
    older.hidden = next === null;
    setText(status, describeCount(inferences.length));
    if (append) rows[0]?.querySelector("button").focus();
  }

  function describeCount(number) {
    return number ? `${count(number)}${next === null ? "" : " or more"} found, newest first` : "";
  }

  function createRow(inference, index) {
    const openButton = button(localTime(inference.started / 1000), () => openAt(index), "link");
    if (inference.image?.kept) {
      const src = new URL(`inferences/${encodeURIComponent(inference.id)}/image`, tools.root);
      openButton.prepend(make("img", { src, alt: "", loading: "lazy" }));
    }
    const cell = (key, ...content) => make("td", { class: `col-${key}` }, ...content);
    const { content, score } = summarise(inference);
    const metadata = inference.metadata.map(({ key, value }) => `${key} = ${valueText(value)}`).join(", ");
    return make(
      "tr",
      inference.error ? { class: "failed" } : {},
      make("th.col-time", { scope: "row" }, openButton),
      cell("model", inference.model, " ", inference.reason === TRIAL ? make("span.badge", TRIAL) : ""),
      cell("label", ...content),
      cell("score", score === null ? "–" : percent(100 * score)),
      cell("duration", milliseconds(inference.duration / 1000)),
      cell("metadata", make("span.truncated", metadata)),
    );
  }

  function summarise({ error: errorKind, message, task_type: task, records }) {
    if (errorKind) return { content: [message || errorKind], score: null };
    if (!records?.length) return { content: [make("span.hint", "no results")], score: null };
    if (records.some(({ label, score }) => label === undefined || score === undefined)) {
      const texts = records.slice(0, MAX_TEXTS).map((record) => shortened(textOf(record), MAX_CHARACTERS));
      const text = isolated(texts.join(" · "));
      return { content: [make("span.truncated", records.length > MAX_TEXTS ? `${text} · …` : text)], score: null };
    }
    const summary = summaryOf(task, records);
    const shown = make("span.truncated", swatch(summary.labels[0]), summary.shown);
    return { content: [shown], score: summary.score };
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
    change(address) {
      const parameters = new URLSearchParams(address);
      dialog?.close();
      const id = parameters.get("id");
      parameters.delete("id");
      query = parameters.toString();
      for (const [key, input] of Object.entries(inputs)) input.value = parameters.getAll(key).join(" and ");
      const fields = Object.entries({ ...TEXT_FILTERS, ...CHOICES, ...WIDE_FILTERS });
      const used = fields.filter(([key]) => inputs[key].value);
      const textOfInput = ({ value, selectedOptions }) => selectedOptions?.[0].text ?? value;
      setText(active, used.map(([key, [label]]) => `${label}: ${textOfInput(inputs[key])}`).join(", "));
      // Labels have the colours that they have in the other views.
      catalogue.then(() => load(null)).then(() => id && openById(id));
    },
    close() {
      pending?.abort();
      dialog?.close();
    },
  };
}

// A record without a label as text: the answer to a question, a generated text, or else JSON.
function textOf(record) {
  return record.answer ?? record.generated_text ?? JSON.stringify(record);
}
