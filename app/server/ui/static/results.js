// Results as lists: records with scores, marked texts, dialogues and tensors.

import { make, setText } from "./dom.js";
import { colourOf } from "./palette.js";
import { text } from "./text.js";

const strings = text.try;
const MAX_ROWS = 200;
const MAX_CHARACTERS = 4000;

// Rows of label, bar and score. `tone` selects the colour; `onhover` receives the index under the pointer or focus, or
// null.
export function recordList({ onhover = () => {} } = {}) {
  const list = make("ol", { class: "records" });
  const hiddenCount = make("p", { class: "hint", hidden: "" });
  const rows = new Map();

  function createRow({ index, label, score, tone = label }) {
    const bar = make("span", { class: "bar" }, make("span"));
    bar.firstChild.style.width = `${100 * Math.max(0, Math.min(1, score))}%`;
    bar.firstChild.style.background = colourOf(tone);
    const swatch = make("span", { class: "swatch" });
    swatch.style.background = colourOf(tone);
    const name = make("span", { class: "label", title: label }, label);
    const button = make("button", { type: "button" }, swatch, name, bar, make("span", {}, strings.scoreValue(score)));
    for (const event of ["pointerenter", "focus", "click"]) button.addEventListener(event, () => onhover(index));
    for (const event of ["pointerleave", "blur"]) button.addEventListener(event, () => onhover(null));
    return make("li", {}, button);
  }

  return {
    element: make("div", {}, list, hiddenCount),
    show(records) {
      rows.clear();
      const shown = records.slice(0, MAX_ROWS);
      for (const record of shown) rows.set(record.index, createRow(record));
      list.replaceChildren(...rows.values());
      hiddenCount.hidden = records.length === shown.length;
      setText(hiddenCount, strings.more(records.length - shown.length));
    },
    choose(index) {
      for (const [rowIndex, element] of rows) element.classList.toggle("selected", rowIndex === index);
      rows.get(index)?.scrollIntoView({ block: "nearest" });
    },
  };
}

// A text with its entities marked. Offsets count code points, as in Python.
export function markedText(value, entities) {
  const characters = Array.from(value);
  const children = [];
  let position = 0;
  for (const { start, end, entity_group: group, score } of [...entities].sort(
    (one, other) => one.start - other.start,
  )) {
    if (start < position) continue;
    const mark = make(
      "mark",
      {},
      characters.slice(start, end).join(""),
      make("b", {}, `${group} ${strings.scoreValue(score)}`),
    );
    mark.style.borderColor = colourOf(group);
    children.push(characters.slice(position, start).join(""), mark);
    position = end;
  }
  return make("p", { class: "marked" }, ...children, characters.slice(position).join(""));
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
  return value.length > MAX_CHARACTERS ? `${value.slice(0, MAX_CHARACTERS)} …` : value;
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
        append(chunk) {
          answer.append(chunk);
        },
        end(note) {
          answer.removeAttribute("aria-busy");
          if (note) answer.append(make("span", { class: "hint" }, ` ${note}`));
        },
      };
    },
  };
}
