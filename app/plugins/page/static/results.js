// Results as lists: records with scores, dialogues and tensors.

import { taskOf } from "./catalogue.js";
import { button, make, setText } from "./dom.js";
import { count, isolated } from "./format.js";
import { colourOf, swatch } from "./palette.js";

const MAX_ROWS = 200;

// Rows of label, bar and score. `onhover` receives the index under the pointer or focus, or null.
// `addAction(label, run)` gives each row a button, and `run` its index.
export function recordList({ onhover = () => {} } = {}) {
  const list = make("ol.records");
  const hiddenCount = make("p.hint", { hidden: "" });
  const rows = new Map();
  const actions = [];
  let last = [];

  function createRow({ index, label, score }) {
    const bar = make("span.bar", make("span"));
    bar.firstChild.style.width = `${100 * Math.max(0, Math.min(1, score))}%`;
    bar.firstChild.style.background = colourOf(label);
    const name = make("span.label", { title: label }, label);
    const record = make("button", { type: "button" }, swatch(label), name, bar, make("span", scoreText(score)));
    for (const event of ["pointerenter", "focus", "click"]) record.addEventListener(event, () => onhover(index));
    for (const event of ["pointerleave", "blur"]) record.addEventListener(event, () => onhover(null));
    const buttons = actions.map(([title, run]) => {
      const element = button(title, () => run(index), "link action");
      element.setAttribute("aria-label", `${title} ${label}`);
      return element;
    });
    return make("li", record, ...buttons);
  }

  function show(records) {
    last = records;
    rows.clear();
    const shown = records.slice(0, MAX_ROWS);
    for (const record of shown) rows.set(record.index, createRow(record));
    list.replaceChildren(...rows.values());
    hiddenCount.hidden = records.length === shown.length;
    setText(hiddenCount, `${count(records.length - shown.length)} more`);
  }

  return {
    element: make("div", list, hiddenCount),
    show,
    addAction(title, run) {
      actions.push([title, run]);
      show(last);
    },
    choose(index) {
      for (const [rowIndex, element] of rows) element.classList.toggle("selected", rowIndex === index);
      rows.get(index)?.scrollIntoView({ block: "nearest" });
    },
  };
}

// The results of an image in one line: the best class, or the number of each label.
export function summaryOf(task, records) {
  const sorted = [...records].sort((one, other) => other.score - one.score);
  const selected = taskOf(task).returns === "classes" ? sorted.slice(0, 1) : sorted;
  const counts = new Map();
  for (const { label } of selected) counts.set(label, (counts.get(label) ?? 0) + 1);
  const describe = (format) =>
    [...counts].map(([label, number]) => (number > 1 ? `${number} × ${format(label)}` : format(label))).join(", ");
  const [labels, score] = [[...counts.keys()], sorted[0]?.score ?? null];
  return { text: describe(String), shown: describe(isolated), labels, score };
}

function scoreText(score) {
  return `${(100 * score).toFixed(1)} %`;
}

export function tensorList(outputs) {
  const shown = outputs.map(({ name, datatype, shape, data }) => {
    const values = JSON.stringify(data);
    return [
      make("h3", `${name} ${datatype} [${shape.join(", ")}]`),
      make("pre", { tabindex: "0", role: "group", "aria-label": name }, shortened(values)),
    ];
  });
  return make("div.tensors", ...shown.flat());
}

export function shortened(value, max = 4000) {
  return value.length > max ? `${value.slice(0, max)} …` : value;
}

// An answer that is JSON, perhaps in a code block, with one member a line; null for other texts.
function indentedJson(text) {
  try {
    const value = JSON.parse(text.trim().replace(/^```(?:json)?\n([^]*)\n```$/, "$1"));
    if (value === null || typeof value !== "object") return null;
    const onOneLine = (numbers) => numbers.replace(/\s+/g, "").replaceAll(",", ", ");
    return JSON.stringify(value, null, 2).replace(/\[[-\d.,\s]+\]/g, onOneLine);
  } catch {
    return null;
  }
}

// Questions and streamed answers: add(question) returns { append(chunk), end(note) }.
export function dialogue(label) {
  const list = make("ol");
  const element = make("div.dialogue", { role: "log", "aria-label": label, tabindex: "0", hidden: "" }, list);
  return {
    element,
    add(question) {
      const answer = make("p.answer", { "aria-busy": "true" });
      element.hidden = false;
      list.append(make("li", make("p.question", question), answer));
      list.lastChild.scrollIntoView({ block: "nearest" });
      return {
        append(chunk) {
          answer.append(chunk);
        },
        end(note) {
          answer.removeAttribute("aria-busy");
          const json = indentedJson(answer.textContent);
          if (json !== null) answer.replaceChildren(make("code", json));
          if (note) answer.append(make("span.hint", ` ${note}`));
        },
      };
    },
  };
}
