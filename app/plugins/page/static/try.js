// The Try view: inputs on the left, parameters and results on the right.

import { NO_MODELS, chooseModel, fetchCatalogue, notReady, readyModels, taskName } from "./catalogue.js";
import { choice, field, make, notice, setText } from "./dom.js";
import { count, isolated } from "./format.js";
import { sampleFor, suits } from "./samples.js";
import { session } from "./session.js";
import { createImageTry } from "./try_image.js";
import { createQuestionTry, createTensorTry, createTextTry } from "./try_text.js";

const PURPOSE = "See what a model finds in an image, then call it from your own code.";
const RETRY_MS = 1000;
const CREATORS = { image: createImageTry, question: createQuestionTry, text: createTextTry, tensor: createTensorTry };

export function open(main, tools) {
  const [message, missing] = [notice(), notice()];
  const select = choice([], (model) => tools.go("try", { model }));
  const about = make("p.hint.model-about");
  const body = make("div");
  const heading = make("div", make("h1", "Try"), make("p.hint", PURPOSE));
  const modelSelect = make("div.model-select", field("Model", select), about);
  const toolbar = make("div.toolbar", heading, modelSelect);
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
    tools.about(`Version ${catalogue.version}`);
    select.fill(models.map(({ name }) => [name, name]));
    if (models.length) {
      message.clear();
      show();
    } else {
      message.show(NO_MODELS);
      if (catalogue.models.some((model) => model.state === "LOADING")) timer = setTimeout(load, RETRY_MS);
    }
  }

  function show() {
    const requested = parameters.get("model");
    const model = chooseModel(catalogue, requested ?? session.model);
    missing.show(requested === null || requested === model.name ? "" : notReady(requested));
    select.value = model.name;
    setText(about, describe(model));
    about.title = model.labels.join(", ");
    if (content === null || session.model !== model.name || content.model !== model.name) {
      content?.close();
      message.clear();
      session.model = model.name;
      session.parameters = {};
      const create = CREATORS[model.takes];
      content = create({ tools, root: tools.root, go: tools.go, catalogue, model, message, area: main });
      content.model = model.name;
      const parts = make("div");
      body.replaceChildren(...content.elements, parts);
      tools.extend(parts, { tools, catalogue, model });
    }
    if (parameters.has("score")) content.setScore?.(Number.parseFloat(parameters.get("score")));
    const sample = parameters.get("sample") ?? missingSample(model);
    if (sample && session.images[0]?.sample !== sample) content.sample?.(sample);
    else content.restore?.();
  }

  // Open with an answered sample that suits the model. Images of the user stay.
  function missingSample(model) {
    const images = session.images;
    const isSuitable =
      images.length > 1 || (images.length === 1 && suits(catalogue, images[0].sample, model.task_type));
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

// The task of a model, its description, and the first classes that it knows.
function describe({ task_type, facts, labels }) {
  const description = facts.find((fact) => fact.topic === "description")?.value;
  const more = labels.length > 4 ? ` and ${count(labels.length - 4)} more` : "";
  const known = labels.length ? `Knows ${labels.slice(0, 4).map(isolated).join(", ")}${more}` : "";
  return [taskName(task_type), description, known].filter(Boolean).join(". ");
}
