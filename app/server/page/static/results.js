// Results as lists: records with scores, marked texts, dialogues and tensors.

import { colourOf } from "./drawing.js";
import { make, say } from "./dom.js";
import { text } from "./text.js";

const words = text.try;
const MOST_ROWS = 200;
const LONGEST = 4000;

// Rows of label, bar and score. `tone` selects the colour; `onhover` receives the index under the pointer or focus, or
// null.
export function recordList({ onhover = () => {} } = {}) {
  const list = make("ol", { class: "records" });
  const rest = make("p", { class: "hint", hidden: "" });
  const rows = new Map();

  function row({ index, label, score, tone = label }) {
    const bar = make("span", { class: "bar" }, make("span"));
    bar.firstChild.style.width = `${100 * Math.max(0, Math.min(1, score))}%`;
    bar.firstChild.style.background = colourOf(tone);
    const swatch = make("span", { class: "swatch" });
    swatch.style.background = colourOf(tone);
    const name = make("span", { class: "label", title: label }, label);
    const button = make("button", { type: "button" }, swatch, name, bar, make("span", {}, words.score_(score)));
    for (const event of ["pointerenter", "focus", "click"]) button.addEventListener(event, () => onhover(index));
    for (const event of ["pointerleave", "blur"]) button.addEventListener(event, () => onhover(null));
    return make("li", {}, button);
  }

  return {
    element: make("div", {}, list, rest),
    show(records) {
      rows.clear();
      const shown = records.slice(0, MOST_ROWS);
      for (const record of shown) rows.set(record.index, row(record));
      list.replaceChildren(...rows.values());
      rest.hidden = records.length === shown.length;
      say(rest, words.more(records.length - shown.length));
    },
    choose(index) {
      for (const [rowIndex, element] of rows) element.classList.toggle("chosen", rowIndex === index);
      rows.get(index)?.scrollIntoView({ block: "nearest" });
    },
  };
}

// A text with its entities marked. Offsets count code points, as in Python.
export function markedText(whole, entities) {
  const characters = Array.from(whole);
  const parts = [];
  let at = 0;
  for (const { start, end, entity_group: group, score } of [...entities].sort(
    (one, other) => one.start - other.start,
  )) {
    if (start < at) continue;
    const mark = make(
      "mark",
      {},
      characters.slice(start, end).join(""),
      make("b", {}, `${group} ${words.score_(score)}`),
    );
    mark.style.borderColor = colourOf(group);
    parts.push(characters.slice(at, start).join(""), mark);
    at = end;
  }
  return make("p", { class: "marked" }, ...parts, characters.slice(at).join(""));
}

export function tensorList(outputs) {
  const shown = outputs.map(({ name, datatype, shape, data }) => {
    const values = JSON.stringify(data);
    return [
      make("h3", {}, `${name} ${datatype} [${shape.join(", ")}]`),
      make("pre", { tabindex: "0", role: "group", "aria-label": name }, shortened(values)),
    ];
  });
  return make("div", { class: "tensors" }, ...shown.flat());
}

export function shortened(value) {
  return value.length > LONGEST ? `${value.slice(0, LONGEST)} …` : value;
}

// Questions and streamed answers: add(question) returns { append(chunk), end(note) }.
export function dialogue(label) {
  const list = make("ol");
  const element = make("div", { class: "dialogue", role: "log", "aria-label": label, tabindex: "0", hidden: "" }, list);
  return {
    element,
    add(question) {
      const answer = make("p", { class: "answer", "aria-busy": "true" });
      element.hidden = false;
      list.append(make("li", {}, make("p", { class: "question" }, question), answer));
      list.lastChild.scrollIntoView({ block: "nearest" });
      return {
        grow(piece) {
          answer.append(piece);
        },
        end(note) {
          answer.removeAttribute("aria-busy");
          if (note) answer.append(make("span", { class: "hint" }, ` ${note}`));
        },
      };
    },
  };
}
