// The Try view: inputs on the left, parameters and results on the right.

import { chooseModel, fetchCatalogue, inputKind, readyModels } from "./catalogue.js";
import { choice, field, notice } from "./controls.js";
import { make, setText } from "./dom.js";
import { createImageTry } from "./try_image.js";
import { createQuestionTry, createTensorTry, createTextTry } from "./try_text.js";
import { sampleFor, suits } from "./samples.js";
import { session } from "./session.js";
import { text } from "./text.js";

const strings = text.try;
const ID = "try";
const RETRY_MS = 1000;
const CREATORS = { image: createImageTry, question: createQuestionTry, text: createTextTry, tensor: createTensorTry };

export const tryView = { id: ID, title: strings.title, open };

function open(main, tools) {
  const [message, missing] = [notice(), notice()];
  const select = choice([], (model) => tools.go(ID, { model }));
  const about = make("p", { class: "hint model-about" });
  const body = make("div");
  const heading = make("div", {}, make("h1", {}, strings.title), make("p", { class: "hint" }, strings.purpose));
  const modelSelect = make("div", { class: "model-select" }, field(strings.model, select), about);
  const toolbar = make("div", { class: "toolbar" }, heading, modelSelect);
  main.append(toolbar, missing.element, message.element, body);
  let catalogue = null;
  let content = null;
  let parameters = new URLSearchParams();
  let [closed, timer] = [false, 0];

  async function load() {
    try {
      catalogue = await fetchCatalogue(tools.root);
    } catch (error) {
      message.showError(error);
      return;
    }
    if (closed) return;
    const models = readyModels(catalogue);
    tools.about(text.version(catalogue.version));
    select.fill(models.map(({ name }) => [name, name]));
    if (models.length) {
      message.clear();
      show();
    } else {
      message.show(strings.noModels);
      if (catalogue.models.some((model) => model.state === "LOADING")) timer = setTimeout(load, RETRY_MS);
    }
  }

  function show() {
    const requested = parameters.get("model");
    const model = chooseModel(catalogue, requested ?? session.model);
    missing.show(requested === null || requested === model.name ? "" : strings.notReady(requested));
    select.value = model.name;
    const description = model.facts.find((fact) => fact.topic === "description")?.value;
    setText(about, strings.about(strings.tasks[model.task_type] ?? model.task_type, description, model.labels));
    about.title = model.labels.join(", ");
    if (content === null || session.model !== model.name || content.model !== model.name) {
      content?.close();
      message.clear();
      session.model = model.name;
      session.parameters = {};
      const create = CREATORS[inputKind(model.task_type)];
      content = create({ tools, root: tools.root, go: tools.go, catalogue, model, message, area: main });
      content.model = model.name;
      body.replaceChildren(...content.elements);
    }
    if (parameters.has("score")) content.setScore?.(Number.parseFloat(parameters.get("score")));
    const sample = parameters.get("sample") ?? missingSample(model);
    if (sample && session.images[0]?.sample !== sample) content.sample?.(sample);
    else content.restore?.();
  }

  // Open with an answered sample that suits the model. Images of the user stay.
  function missingSample(model) {
    const images = session.images;
    const isSuitable = images.length > 1 || (images.length === 1 && suits(catalogue, images[0].sample, model.task_type));
    return isSuitable || tools.observed ? "" : sampleFor(catalogue, model.task_type);
  }

  load();
  return {
    change(next) {
      parameters = next;
      if (catalogue !== null && readyModels(catalogue).length) show();
    },
    close() {
      closed = true;
      clearTimeout(timer);
      content?.close();
    },
  };
}
