// The Try view: inputs on the left, parameters and results on the right.

import { NO_MODELS, chooseModel, fetchCatalogue, notReady, readyModels, taskName } from "./catalogue.js";
import { choice, field, make, notice, setText } from "./dom.js";
import { count, isolated } from "./format.js";
import { sampleFor, suits } from "./images.js";
import { useColours } from "./palette.js";
import { session } from "./session.js";
import { createImageTry } from "./try_image.js";
import { createQuestionTry, createTensorTry, createTextTry } from "./try_text.js";

const POLL_MS = 1000;
// Whether the user has done something on this page.
let hasActed = false;
for (const type of ["pointerdown", "keydown"]) document.addEventListener(type, () => (hasActed = true), true);

const CREATORS = { image: createImageTry, question: createQuestionTry, text: createTextTry, tensor: createTensorTry };

export function open(main, tools) {
  const [message, missing] = [notice(), notice()];
  const select = choice([], (model) => tools.go("try", { model, ...content?.compared?.() }));
  const about = make("p.hint");
  const body = make("div.content");
  const toolbar = make("div.toolbar", make("h1.visually-hidden", "Try"), field("Model", select), about);
  main.append(toolbar, missing.element, message.element, body);
  let [catalogue, content, added] = [null, null, null];
  let parameters = new URLSearchParams();
  let [closed, isLeft] = [false, false];

  // While models are loading, look again every second, and show the one that the address asks for when it is ready.
  function load(isFirst = true) {
    fetchCatalogue(tools.root).then((latest) => {
      if (closed || isLeft) return;
      catalogue = latest;
      const models = readyModels(catalogue);
      select.fill(models.map(({ name }) => [name, name]), content === null ? undefined : session.model);
      const isShown = content !== null && (parameters.get("model") ?? session.model) === session.model;
      if (!models.length) missing.show(NO_MODELS);
      else if (isFirst || !isShown) show();
      if (latest.models.some(({ state }) => state === "LOADING")) setTimeout(load, POLL_MS, false);
    }, message.showError);
  }

  function show() {
    const requested = parameters.get("model");
    const model = chooseModel(catalogue, requested ?? session.model);
    missing.show(requested === null || requested === model.name ? "" : notReady(requested));
    select.value = model.name;
    setText(about, describe(model));
    about.title = model.labels.join(", ");
    useColours(model);
    // A model that was loaded again may differ.
    const described = JSON.stringify({ ...model, memory: null });
    if (content?.described !== described) {
      content?.close();
      added?.close();
      message.clear();
      session.model = model.name;
      session.parameters = {};
      const create = CREATORS[model.takes];
      content = create({ tools, root: tools.root, go: tools.go, catalogue, model, message, area: main });
      content.described = described;
      body.replaceChildren(...content.elements);
      added = tools.extend(content.sidebar, { tools, catalogue, model, message, images: content.images });
    }
    content.change?.(parameters);
    // Where requests are recorded, none is sent before the user does something.
    const isFree = !tools.observed || model.takes !== "image";
    const asked = isFree || hasActed ? parameters.get("sample") : "";
    const sample = asked ?? (isFree ? missingSample(model) : "");
    if (sample && session.images[0]?.sample !== sample) content.sample?.(sample);
    else content.restore?.();
  }

  // Open with an answered sample that suits the model. Images of the user stay.
  function missingSample(model) {
    const images = session.images;
    const isSuitable =
      images.length > 1 || (images.length === 1 && suits(catalogue, images[0].sample, model));
    return isSuitable ? "" : sampleFor(catalogue, model);
  }

  load();
  return {
    change(next) {
      parameters = next;
      if (isLeft) load();
      isLeft = false;
      if (catalogue !== null && readyModels(catalogue).length) show();
    },
    leave() {
      isLeft = true;
      content?.leave?.();
    },
    close() {
      closed = true;
      content?.close();
      added?.close();
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
