// Try language and tensor models: questions about an image, texts, tensors.

import { button, field } from "./controls.js";
import { make, say } from "./dom.js";
import { gallery } from "./image_list.js";
import { infer, streamAnswer } from "./inference.js";
import { parameterForm } from "./parameters.js";
import { dialogue, markedText, recordList, tensorList } from "./results.js";
import { session } from "./session.js";
import { text } from "./text.js";
import { trialOf } from "./try_layout.js";
import { viewer } from "./viewer.js";

const words = text.try;

// A text area with a button, which becomes Stop while `run(value, signal)` runs.
function asking({ label, value, hint, run, act, fault, rows, submits }) {
  const input = make("textarea", { rows, spellcheck: "false" });
  input.value = value;
  let running = null;
  const go = button(run, start, "main");

  async function start() {
    if (running !== null) {
      running.abort();
      return;
    }
    fault.clear();
    running = new AbortController();
    say(go, words.stop);
    try {
      await act(input.value, running.signal);
    } catch (error) {
      if (error.name !== "AbortError") fault.fail(error.message);
    }
    running = null;
    say(go, run);
  }

  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing || !submits(event)) return;
    event.preventDefault();
    if (running === null) start();
  });
  return {
    element: make("div", { class: "asking" }, field(label, input, hint), go),
    input,
    stop: () => running?.abort(),
  };
}

const withControl = (event) => event.ctrlKey || event.metaKey;

// Append the chunks of a stream to an answer in the dialogue.
async function tellPieces(answer, pieces) {
  let note = "";
  let any = false;
  try {
    for await (const piece of pieces) {
      any = true;
      answer.grow(piece);
    }
    if (!any) note = words.noAnswer;
  } catch (error) {
    if (error.name === "AbortError") note = words.stopped;
    else throw error;
  } finally {
    answer.end(note);
  }
}

function lookButton(go, model) {
  return button(words.look, () => go("request", { model: model.name }));
}

export function questionPart({ root, go, catalogue, model, fault, area }) {
  const seen = viewer({ label: words.pictures });
  const stage = make("div", { hidden: "" }, seen.element);
  const talk = dialogue(words.asked);
  const form = parameterForm(model, { onnarrow() {}, onask: keep });
  const pictures = gallery({
    root,
    area,
    samples: catalogue.samples,
    fault,
    onnew() {},
    onshow(picture) {
      seen.show(picture);
      stage.hidden = picture === null;
    },
    onsample: (sample) => go("try", { model: model.name, sample }),
  });
  const box = asking({
    label: words.question,
    value: session.question || words.example,
    run: words.ask,
    rows: 2,
    fault,
    submits: (event) => !event.shiftKey,
    async act(question, signal) {
      const picture = pictures.shown();
      if (picture === null) throw new Error(words.needsPicture);
      if (!question.trim()) throw new Error(words.needsText);
      keep();
      const asked = session.pictures.length > 1 ? `${picture.name}: ${question}` : question;
      await tellPieces(
        talk.add(asked),
        streamAnswer({ root, model, picture, text: question, parameters: form.others(), signal }),
      );
    },
  });

  function keep() {
    session.question = box.input.value;
    session.parameters = { ...form.others(), prompts: [box.input.value] };
  }

  const side = make(
    "section",
    { class: "panel side", "aria-label": words.asked },
    talk.element,
    box.element,
    make("details", {}, make("summary", {}, words.parameters), form.element),
    make("div", { class: "row" }, lookButton(go, model)),
  );
  keep();
  return trialOf({ pictures, stage, side, seen, stop: () => box.stop() });
}

export function textPart({ root, go, catalogue, model, fault }) {
  const output = make("section", { class: "panel side", "aria-label": words.results });
  const status = make("p", { class: "hint", role: "status" });
  const talk = dialogue(words.asked);
  const form = parameterForm(model, { onnarrow: show, onask: keep });
  let answer = null;
  const box = asking({
    label: words.text,
    value: session.text || words.textExample,
    hint: words.runHint,
    run: words.run,
    rows: 6,
    fault,
    submits: withControl,
    async act(value, signal) {
      if (!value.trim()) throw new Error(words.needsText);
      keep();
      if (model.streams) {
        const began = performance.now();
        await tellPieces(
          talk.add(value),
          streamAnswer({ root, model, text: value, parameters: form.others(), signal }),
        );
        say(status, words.answered(Math.round(performance.now() - began)));
        return;
      }
      say(status, words.running);
      const parameters = { ...form.others(), score_threshold: 0 };
      delete parameters.top_k;
      const found = await infer({ root, catalogue, model, data: [value], parameters, signal });
      answer = { value, records: found.outputs[0] };
      say(status, words.answered(Math.round(found.milliseconds)));
      show();
    },
  });
  const list = recordList();
  const marked = make("div");

  function keep() {
    session.text = box.input.value;
    session.parameters = form.asked();
  }

  function show() {
    keep();
    if (answer === null) return;
    const { score, most } = form.narrowing();
    const kept = answer.records.filter((record) => record.score >= score).slice(0, most);
    list.show(
      kept.map((record, index) => ({
        index,
        label: record.label ?? record.word,
        tone: record.entity_group,
        score: record.score,
      })),
    );
    if (model.task_type === "TOKEN_CLASSIFICATION") marked.replaceChildren(markedText(answer.value, kept));
  }

  output.append(form.element, status, marked, model.streams ? talk.element : list.element);
  output.append(make("div", { class: "row" }, lookButton(go, model)));
  keep();
  return {
    elements: [
      make(
        "div",
        { class: "trial" },
        make("section", { class: "panel", "aria-label": words.tasks[model.task_type] }, box.element),
        output,
      ),
    ],
    close: () => box.stop(),
  };
}

export function tensorPart({ root, go, catalogue, model, fault }) {
  const status = make("p", { class: "hint", role: "status" });
  const found = make("div");
  const box = asking({
    label: words.tensors,
    value: example(model),
    hint: words.runHint,
    run: words.run,
    rows: 8,
    fault,
    submits: withControl,
    async act(value, signal) {
      const tensors = readTensors(value, model);
      session.tensors = value;
      const answer = await infer({ root, catalogue, model, data: [tensors], parameters: {}, signal });
      say(status, words.answered(Math.round(answer.milliseconds)));
      found.replaceChildren(tensorList(answer.outputs[0]));
    },
  });
  const output = make(
    "section",
    { class: "panel side", "aria-label": words.outputs },
    make("h2", {}, words.outputs),
    status,
    found,
  );
  output.append(make("div", { class: "row" }, lookButton(go, model)));
  return {
    elements: [
      make(
        "div",
        { class: "trial" },
        make("section", { class: "panel", "aria-label": words.tasks.TENSOR }, box.element),
        output,
      ),
    ],
    close: () => box.stop(),
  };
}

// Example tensors with the model's input shapes; a size of -1 becomes 2.
export function example(model) {
  const cell = { BYTES: "text", BOOL: true };
  const filled = ([size, ...rest], datatype) => {
    if (size === undefined) return cell[datatype] ?? 1;
    return Array.from({ length: size < 0 ? 2 : Math.min(size, 8) }, () => filled(rest, datatype));
  };
  const all = model.inputs.map(({ name, shape, datatype }) => [name, filled(shape, datatype)]);
  return JSON.stringify(Object.fromEntries(all));
}

export function readTensors(value, model) {
  let read;
  try {
    read = JSON.parse(value);
  } catch (error) {
    throw new Error(words.tensorsWrong(error.message));
  }
  const names = model.inputs.map((input) => input.name);
  const fits = read !== null && typeof read === "object" && names.every((name) => Array.isArray(read[name]));
  if (!fits) throw new Error(words.tensorsNoObject(names.join(", ")));
  return read;
}
