// The Try view: inputs on the left, parameters and results on the right.

import { choices, chosen, fetchCatalogue, sortOf } from "./catalogue.js";
import { choice, field, notice } from "./controls.js";
import { make } from "./dom.js";
import { picturePart } from "./try_image.js";
import { questionPart, tensorPart, textPart } from "./try_text.js";
import { session } from "./session.js";
import { text } from "./text.js";

const words = text.try;
const ID = "try";
const PATIENCE = 1000;
const PARTS = { picture: picturePart, question: questionPart, text: textPart, tensor: tensorPart };

export const tryView = { id: ID, title: words.title, open };

function open(main, tools) {
  const [fault, lost] = [notice(), notice()];
  const select = choice([], (model) => tools.go(ID, { model }));
  const about = make("span", { class: "hint" });
  const body = make("div");
  const picking = make("div", { class: "picking" }, field(words.model, select), about);
  main.append(make("div", { class: "toolbar" }, make("h1", {}, words.title), picking), lost.element, fault.element, body);
  let catalogue = null;
  let part = null;
  let parameters = new URLSearchParams();
  let [closed, timer] = [false, 0];

  async function load() {
    try {
      catalogue = await fetchCatalogue(tools.root);
    } catch (error) {
      fault.fail(error.message);
      return;
    }
    if (closed) return;
    const all = choices(catalogue);
    tools.about(text.version(catalogue.version));
    select.fill(all.map(({ name }) => [name, name]));
    if (all.length) {
      fault.clear();
      show();
    } else {
      fault.tell(words.noModels);
      if (catalogue.models.some((model) => model.state === "LOADING")) timer = setTimeout(load, PATIENCE);
    }
  }

  function show() {
    const asked = parameters.get("model");
    const model = chosen(catalogue, asked ?? session.model);
    lost.tell(asked === null || asked === model.name ? "" : words.notReady(asked));
    select.value = model.name;
    about.textContent = words.tasks[model.task_type] ?? model.task_type;
    if (part === null || session.model !== model.name || part.model !== model.name) {
      part?.close();
      fault.clear();
      session.model = model.name;
      session.parameters = {};
      part = PARTS[sortOf(model.task_type)]({ root: tools.root, go: tools.go, catalogue, model, fault, area: main });
      part.model = model.name;
      body.replaceChildren(...part.elements);
    }
    const sample = parameters.get("sample");
    if (sample !== null && session.pictures[0]?.sample !== sample) part.sample?.(sample);
    else part.begin?.();
  }

  load();
  return {
    change(next) {
      parameters = next;
      if (catalogue !== null && choices(catalogue).length) show();
    },
    close() {
      closed = true;
      clearTimeout(timer);
      part?.close();
    },
  };
}
