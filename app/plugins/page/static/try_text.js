// Try language and tensor models: questions about an image, texts, tensors.

import { taskName } from "./catalogue.js";
import { button, field, make, setText, stopwatch } from "./dom.js";
import { locatedShapes } from "./drawing.js";
import { imageList, imageTryLayout } from "./image_list.js";
import { infer, streamAnswer } from "./inference.js";
import { parameterForm } from "./parameters.js";
import { dialogue, tensorList } from "./results.js";
import { session } from "./session.js";
import { viewer } from "./viewer.js";

// The example model has learned this question, so its words must not change.
export const EXAMPLE_QUESTION = "What is in the picture?";
export const EXAMPLE_TEXT = "Ada Lovelace wrote the first program in London.";

// A text area with a button, which becomes Stop while `onrun(value, signal)` runs. After an error, `onclear` removes
// the old answer. `onsave(value)` keeps what the user typed.
function promptForm({ label, value, hint, run, onrun, onclear = () => {}, onsave, message, rows, isSubmit }) {
  const input = make("textarea", { rows, spellcheck: "false" });
  input.value = value;
  let running = null;
  const runButton = button(run, start, "primary");

  async function start() {
    if (running !== null) {
      running.abort();
      return;
    }
    message.clear();
    running = new AbortController();
    setText(runButton, "Stop");
    const stopTimer = stopwatch((seconds) => setText(runButton, `Stop, ${seconds}`));
    try {
      await onrun(input.value, running.signal);
    } catch (error) {
      onclear();
      message.showError(error);
    }
    stopTimer();
    running = null;
    setText(runButton, run);
  }

  input.addEventListener("input", () => onsave(input.value));
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing || !isSubmit(event)) return;
    event.preventDefault();
    if (running === null) start();
  });
  return {
    element: make("div.prompt-form", field(label, input, hint), runButton),
    input,
    stop: () => running?.abort(),
  };
}

const answeredIn = (milliseconds) => `Answered in ${Math.round(milliseconds)} ms`;
const isControlEnter = (event) => event.ctrlKey || event.metaKey;

// Append the chunks of a stream to an answer in the dialogue. `onlocated` gets the objects that the answer locates.
async function appendChunks(answer, chunks, onlocated) {
  let note = "";
  let received = false;
  try {
    for await (const chunk of chunks) {
      if (typeof chunk === "string") {
        received = true;
        answer.append(chunk);
      } else {
        onlocated(chunk.objects);
        note = chunk.note && `(${chunk.note})`;
      }
    }
    if (!received) note = "(no answer)";
  } catch (error) {
    if (error.name === "AbortError") note = "(stopped)";
    else throw error;
  } finally {
    answer.end(note);
  }
}

function requestButton(go, model) {
  return button("Use in code", () => go("request", { model: model.name }));
}

export function createQuestionTry({ root, go, catalogue, model, message, area }) {
  const imageViewer = viewer({ label: "Images" });
  const stage = make("div", { hidden: "" }, imageViewer.element);
  const conversation = dialogue("Questions and answers");
  const form = parameterForm(model, { onrequest: saveSession });
  const imageInputs = imageList({
    root,
    area,
    catalogue,
    model,
    message,
    onnew() {},
    onshow(image) {
      imageViewer.show(image);
      stage.hidden = image === null;
    },
    onsample: (sample) => go("try", { model: model.name, sample }),
  });
  const prompt = promptForm({
    label: "Question",
    value: session.question || EXAMPLE_QUESTION,
    run: "Ask",
    onsave: (question) => (session.question = question),
    rows: 2,
    message,
    isSubmit: (event) => !event.shiftKey,
    async onrun(question, signal) {
      const image = imageInputs.shown();
      if (image === null) throw new Error("Add an image first.");
      if (!question.trim()) throw new Error("Enter a text first.");
      saveSession();
      imageViewer.shapes([]);
      const heading = session.images.length > 1 ? `${image.name}: ${question}` : question;
      await appendChunks(
        conversation.add(heading),
        streamAnswer({ root, model, image, text: question, parameters: form.ownParameters(), signal }),
        (objects) => imageInputs.shown() === image && imageViewer.shapes(locatedShapes(objects)),
      );
    },
  });

  function saveSession() {
    session.question = prompt.input.value;
    session.parameters = { ...form.ownParameters(), prompts: [prompt.input.value] };
  }

  const sidebar = make(
    "section.panel.sidebar",
    { "aria-label": "Questions and answers" },
    conversation.element,
    prompt.element,
    make("div.row", requestButton(go, model)),
    form.more,
  );
  saveSession();
  return imageTryLayout({ images: imageInputs, stage, sidebar, viewer: imageViewer, stop: () => prompt.stop() });
}

export function createTextTry({ root, go, model, message }) {
  const status = make("p.hint", { role: "status" });
  const conversation = dialogue("Questions and answers");
  const form = parameterForm(model, { onrequest: saveSession });
  const prompt = promptForm({
    label: "Text",
    value: session.text || EXAMPLE_TEXT,
    hint: "Press Ctrl+Enter to run.",
    run: "Run",
    rows: 6,
    message,
    isSubmit: isControlEnter,
    onsave: (value) => (session.text = value),
    onclear: () => setText(status, ""),
    async onrun(value, signal) {
      if (!value.trim()) throw new Error("Enter a text first.");
      saveSession();
      const started = performance.now();
      await appendChunks(
        conversation.add(value),
        streamAnswer({ root, model, text: value, parameters: form.ownParameters(), signal }),
      );
      setText(status, answeredIn(performance.now() - started));
    },
  });

  function saveSession() {
    session.text = prompt.input.value;
    session.parameters = form.ownParameters();
  }

  const output = make("section.panel.sidebar", { "aria-label": "Results" }, status, conversation.element);
  output.append(make("div.row", requestButton(go, model)), form.more);
  saveSession();
  return textTryLayout(model, prompt, output);
}

export function createTensorTry({ root, go, catalogue, model, message }) {
  const status = make("p.hint", { role: "status" });
  const results = make("div");
  const prompt = promptForm({
    label: "Tensors by name, as JSON",
    value: exampleTensors(model),
    hint: "Press Ctrl+Enter to run.",
    run: "Run",
    rows: 8,
    message,
    isSubmit: isControlEnter,
    onsave() {},
    onclear() {
      setText(status, "");
      results.replaceChildren();
    },
    async onrun(value, signal) {
      const tensors = readTensors(value, model);
      session.tensors = value;
      const answer = await infer({ root, catalogue, model, data: [tensors], parameters: {}, signal });
      setText(status, answeredIn(answer.milliseconds));
      results.replaceChildren(tensorList(answer.outputs[0]));
    },
  });
  const output = make("section.panel.sidebar", { "aria-label": "Outputs" }, make("h2", "Outputs"), status, results);
  output.append(make("div.row", requestButton(go, model)));
  return textTryLayout(model, prompt, output);
}

// The layout of Try for models with text inputs: the prompt and the output.
function textTryLayout(model, prompt, output) {
  const panel = make("section.panel", { "aria-label": taskName(model.task_type) }, prompt.element);
  return { elements: [make("div.try-layout", panel, output)], sidebar: output, close: () => prompt.stop() };
}

// Example tensors with the model's input shapes; a size of -1 becomes 2.
export function exampleTensors(model) {
  const cell = { BYTES: "text", BOOL: true };
  const filled = ([size, ...rest], datatype) => {
    if (size === undefined) return cell[datatype] ?? 1;
    return Array.from({ length: size < 0 ? 2 : Math.min(size, 8) }, () => filled(rest, datatype));
  };
  const entries = model.inputs.map(({ name, shape, datatype }) => [name, filled(shape, datatype)]);
  return JSON.stringify(Object.fromEntries(entries));
}

export function readTensors(value, model) {
  let tensors;
  try {
    tensors = JSON.parse(value);
  } catch (error) {
    throw new Error(`Tensors: This is not valid JSON: ${error.message}`);
  }
  const names = model.inputs.map((input) => input.name);
  const isObject = tensors !== null && typeof tensors === "object";
  const isValid = isObject && names.every((name) => Array.isArray(tensors[name]));
  if (!isValid) throw new Error(`Tensors: Expected an object with a list for each input: ${names.join(", ")}`);
  return tensors;
}
