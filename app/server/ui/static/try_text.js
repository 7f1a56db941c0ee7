// Try language and tensor models: questions about an image, texts, tensors.

import { button, field } from "./controls.js";
import { make, setText } from "./dom.js";
import { imageList, imageTryLayout } from "./image_list.js";
import { infer, streamAnswer } from "./inference.js";
import { parameterForm } from "./parameters.js";
import { dialogue, markedText, recordList, tensorList } from "./results.js";
import { session } from "./session.js";
import { taskOf } from "./tasks.js";
import { text } from "./text.js";
import { viewer } from "./viewer.js";

const strings = text.try;

// A text area with a button, which becomes Stop while `onrun(value, signal)` runs. After an error, `onclear` removes the
// old answer. `onsave(value)` keeps what the user typed.
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
    setText(runButton, strings.stop);
    try {
      await onrun(input.value, running.signal);
    } catch (error) {
      onclear();
      message.showError(error);
    }
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
    element: make("div", { class: "prompt-form" }, field(label, input, hint), runButton),
    input,
    stop: () => running?.abort(),
  };
}

const isControlEnter = (event) => event.ctrlKey || event.metaKey;

// Append the chunks of a stream to an answer in the dialogue.
async function appendChunks(answer, chunks) {
  let note = "";
  let received = false;
  try {
    for await (const chunk of chunks) {
      received = true;
      answer.append(chunk);
    }
    if (!received) note = strings.noAnswer;
  } catch (error) {
    if (error.name === "AbortError") note = strings.stopped;
    else throw error;
  } finally {
    answer.end(note);
  }
}

function requestButton(go, model) {
  return button(strings.showRequest, () => go("request", { model: model.name }));
}

export function createQuestionTry({ root, go, catalogue, model, message, area }) {
  const imageViewer = viewer({ label: strings.images });
  const stage = make("div", { hidden: "" }, imageViewer.element);
  const conversation = dialogue(strings.conversation);
  const form = parameterForm(model, { onfilter() {}, onrequest: saveSession });
  const imageInputs = imageList({
    root,
    area,
    catalogue,
    task: model.task_type,
    message,
    onnew() {},
    onshow(image) {
      imageViewer.show(image);
      stage.hidden = image === null;
    },
    onsample: (sample) => go("try", { model: model.name, sample }),
  });
  const prompt = promptForm({
    label: strings.question,
    value: session.question || strings.exampleQuestion,
    run: strings.ask,
    onsave: (question) => (session.question = question),
    rows: 2,
    message,
    isSubmit: (event) => !event.shiftKey,
    async onrun(question, signal) {
      const image = imageInputs.shown();
      if (image === null) throw new Error(strings.needsImage);
      if (!question.trim()) throw new Error(strings.needsText);
      saveSession();
      const heading = session.images.length > 1 ? `${image.name}: ${question}` : question;
      await appendChunks(
        conversation.add(heading),
        streamAnswer({ root, model, image, text: question, parameters: form.ownParameters(), signal }),
      );
    },
  });

  function saveSession() {
    session.question = prompt.input.value;
    session.parameters = { ...form.ownParameters(), prompts: [prompt.input.value] };
  }

  const sidebar = make(
    "section",
    { class: "panel sidebar", "aria-label": strings.conversation },
    conversation.element,
    prompt.element,
    make("details", {}, make("summary", {}, strings.parameters), form.element),
    make("div", { class: "row" }, requestButton(go, model)),
  );
  saveSession();
  return imageTryLayout({ images: imageInputs, stage, sidebar, viewer: imageViewer, stop: () => prompt.stop() });
}

export function createTextTry({ root, go, catalogue, model, message }) {
  const output = make("section", { class: "panel sidebar", "aria-label": strings.results });
  const status = make("p", { class: "hint", role: "status" });
  const conversation = dialogue(strings.conversation);
  const form = parameterForm(model, { onfilter: show, onrequest: saveSession });
  let answer = null;
  const prompt = promptForm({
    label: strings.text,
    value: session.text || strings.textExample,
    hint: strings.runHint,
    run: strings.run,
    rows: 6,
    message,
    isSubmit: isControlEnter,
    onsave: (value) => (session.text = value),
    onclear() {
      answer = null;
      setText(status, "");
      list.show([]);
      marked.replaceChildren();
    },
    async onrun(value, signal) {
      if (!value.trim()) throw new Error(strings.needsText);
      saveSession();
      if (model.streams) {
        const started = performance.now();
        await appendChunks(
          conversation.add(value),
          streamAnswer({ root, model, text: value, parameters: form.ownParameters(), signal }),
        );
        setText(status, strings.answered(Math.round(performance.now() - started)));
        return;
      }
      setText(status, strings.running);
      const parameters = { ...form.ownParameters(), score_threshold: 0 };
      delete parameters.top_k;
      const found = await infer({ root, catalogue, model, data: [value], parameters, signal });
      answer = { value, records: found.outputs[0] };
      setText(status, strings.answered(Math.round(found.milliseconds)));
      show();
    },
  });
  const list = recordList();
  const marked = make("div");

  function saveSession() {
    session.text = prompt.input.value;
    session.parameters = form.requested();
  }

  function show() {
    saveSession();
    if (answer === null) return;
    const { score, max } = form.filter();
    const shown = answer.records.filter((record) => record.score >= score).slice(0, max);
    list.show(
      shown.map((record, index) => ({
        index,
        label: record.label ?? record.word,
        tone: record.entity_group,
        score: record.score,
      })),
    );
    if (taskOf(model.task_type).returns === "entities") marked.replaceChildren(markedText(answer.value, shown));
  }

  output.append(form.element, status, marked, model.streams ? conversation.element : list.element);
  output.append(make("div", { class: "row" }, requestButton(go, model)));
  saveSession();
  return {
    elements: [
      make(
        "div",
        { class: "try-layout" },
        make("section", { class: "panel", "aria-label": strings.tasks[model.task_type] ?? model.task_type }, prompt.element),
        output,
      ),
    ],
    close: () => prompt.stop(),
  };
}

export function createTensorTry({ root, go, catalogue, model, message }) {
  const status = make("p", { class: "hint", role: "status" });
  const results = make("div");
  const prompt = promptForm({
    label: strings.tensors,
    value: exampleTensors(model),
    hint: strings.runHint,
    run: strings.run,
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
      setText(status, strings.answered(Math.round(answer.milliseconds)));
      results.replaceChildren(tensorList(answer.outputs[0]));
    },
  });
  const output = make(
    "section",
    { class: "panel sidebar", "aria-label": strings.outputs },
    make("h2", {}, strings.outputs),
    status,
    results,
  );
  output.append(make("div", { class: "row" }, requestButton(go, model)));
  return {
    elements: [
      make(
        "div",
        { class: "try-layout" },
        make("section", { class: "panel", "aria-label": strings.tasks.TENSOR }, prompt.element),
        output,
      ),
    ],
    close: () => prompt.stop(),
  };
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
    throw new Error(strings.tensorsNoJson(error.message));
  }
  const names = model.inputs.map((input) => input.name);
  const isObject = tensors !== null && typeof tensors === "object";
  const isValid = isObject && names.every((name) => Array.isArray(tensors[name]));
  if (!isValid) throw new Error(strings.tensorsNoObject(names.join(", ")));
  return tensors;
}
