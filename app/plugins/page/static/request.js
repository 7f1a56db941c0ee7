// The view Use in code: one inference as Python and curl, and its response, in each protocol that fits.

import { NO_MODELS, chooseModel, fetchCatalogue, notReady, readyModels } from "./catalogue.js";
import { codeBlock } from "./code_block.js";
import { button, choice, field, make, notice, setText, stopwatch, switcher } from "./dom.js";
import { count } from "./format.js";
import { loadSample, sampleFor } from "./images.js";
import { sendRequest } from "./inference.js";
import { PROTOCOLS } from "./protocols.js";
import { session } from "./session.js";
import { curl, python } from "./snippets.js";
import { EXAMPLE_QUESTION, EXAMPLE_TEXT, exampleTensors, readTensors } from "./try_text.js";

const MAX_CHARACTERS = 40_000;
const MAX_IMAGES = 4;

export function open(main, tools) {
  const message = notice();
  const select = choice([], (model) => tools.go("request", { model, protocol }));
  const tabs = switcher(
    "Protocol",
    Object.entries(PROTOCOLS).map(([id, { title }]) => [id, title]),
    (id) => tools.go("request", { ...currentModel(), protocol: id }),
  );
  const note = make("p.hint");
  const send = button("Send", onsend, "primary");
  const stop = button("Stop", () => sending.abort());
  stop.hidden = true;
  const status = make("p.hint", { role: "status" }, "Not sent yet.");
  const response = codeBlock("Response");
  const command = codeBlock("curl");
  const program = codeBlock("Python");
  const folderHint = make("p.hint");
  const panel = (name, ...parts) => make("section.panel", { "aria-label": name }, make("h2", name), ...parts);
  const commandPanel = panel("curl", command.element, folderHint);
  const responsePanel = panel("Response", make("div.row", send, status, stop), response.element);
  const programPanel = panel("Python", program.element, note);
  const body = make("div.request-panels", { hidden: "" }, programPanel, commandPanel, responsePanel);
  const added = make("div");
  main.append(
    make("div.toolbar", make("h1.visually-hidden", "Use in code"), field("Model", select), tabs.element),
    message.element,
    body,
    added,
  );
  let catalogue = null;
  let [model, protocol] = [null, Object.keys(PROTOCOLS)[0]];
  let [data, parameters] = [[], {}];
  let sending = new AbortController();
  let closed = false;
  let address = new URLSearchParams();

  const exchange = () => ({ root: tools.root, catalogue, model, data, parameters });

  // The user may choose a protocol before the models are loaded.
  function currentModel() {
    const name = model?.name ?? address.get("model");
    const score = parameters.score_threshold ?? address.get("score");
    return { ...(name === null ? {} : { model: name }), ...((score ?? null) === null ? {} : { score }) };
  }

  async function show() {
    message.clear();
    const requested = address;
    const selected = chooseModel(catalogue, requested.get("model") ?? session.model);
    if (selected === undefined) {
      message.show(NO_MODELS);
      return;
    }
    const isOffered = ([, { fits, port }]) => (fits?.(selected) ?? true) && (!port || port in catalogue.ports);
    const offered = Object.entries(PROTOCOLS).filter(isOffered).map(([id]) => id);
    protocol = offered.includes(requested.get("protocol")) ? requested.get("protocol") : offered[0];
    tabs.offer(offered);
    tabs.choose(protocol);
    select.value = selected.name;
    sending.abort();
    try {
      const inputs = await dataFor(selected);
      // The user may have changed the address meanwhile.
      if (requested !== address) return;
      model = selected;
      data = inputs;
      parameters = session.model === model.name ? session.parameters : defaults(model);
      const score = Number.parseFloat(requested.get("score"));
      if (score >= 0 && score <= 1 && score !== (model.parameters.score_threshold?.default ?? score)) {
        parameters = { ...parameters, score_threshold: score };
      }
      write();
      const name = requested.get("model");
      if (name !== null && name !== model.name) message.show(notReady(name));
    } catch (error) {
      if (requested !== address) return;
      body.hidden = true;
      message.showError(error);
    }
  }

  // The last input of the Try view, or an example.
  async function dataFor(selected) {
    if (selected.takes === "text") return [session.text || EXAMPLE_TEXT];
    if (selected.takes === "tensor")
      return [readTensors((session.model === selected.name && session.tensors) || exampleTensors(selected), selected)];
    if (session.images.length) return session.images.slice(0, MAX_IMAGES);
    const sample = sampleFor(catalogue, selected);
    if (sample === undefined) throw new Error("Add an image first.");
    session.images = [await loadSample(tools.root, sample)];
    return session.images;
  }

  function write() {
    if (closed) return;
    const parts = make("div");
    added.replaceChildren(parts);
    tools.extend(parts, { tools, catalogue, model });
    tools.save({ ...currentModel(), protocol });
    const written = PROTOCOLS[protocol].write(exchange());
    body.hidden = false;
    const { code, needs } = python(PROTOCOLS[protocol], written, exchange());
    program.show(code, `pip install ${needs}`);
    setText(note, written.note);
    // The page reaches no other port, and curl does not speak gRPC.
    responsePanel.hidden = written.port !== undefined;
    commandPanel.hidden = protocol === "grpc";
    if (protocol === "grpc") return;
    const images = data.filter((datum) => datum.blob).map((datum) => datum.name);
    command.show(curl(written, exchange()));
    setText(folderHint, images.length ? `Run it in the folder that contains ${images.join(", ")}.` : "");
    setText(status, "Not sent yet.");
    response.show("");
  }

  async function onsend() {
    message.clear();
    sending.abort();
    const { signal } = (sending = new AbortController());
    setText(status, "Sending …");
    const stopTimer = stopwatch((seconds) => {
      stop.hidden = false;
      setText(status, `Sending … ${seconds}`);
    });
    try {
      const result = await sendRequest(protocol, { ...exchange(), signal });
      setText(status, `Status ${result.response.status}, ${count(result.milliseconds)} ms`);
      const headers = Object.entries(result.response.headers).map(([name, value]) => `${name}: ${value}`);
      const answer = result.response.text;
      response.show([...headers, "", indentJson(answer)].join("\n"), "", answer);
    } catch (error) {
      if (signal !== sending.signal) return;
      setText(status, signal.aborted ? "Stopped" : "Not sent yet.");
      response.show("");
      message.showError(error);
    } finally {
      stopTimer();
      stop.hidden = true;
    }
  }

  fetchCatalogue(tools.root).then(
    (result) => {
      if (closed) return;
      catalogue = result;
      select.fill(readyModels(catalogue).map(({ name }) => [name, name]));
      show();
    },
    (error) => message.showError(error),
  );
  return {
    change(next) {
      address = next;
      if (catalogue !== null) show();
    },
    close() {
      closed = true;
      sending.abort();
    },
  };
}

function defaults(model) {
  return model.takes === "question" ? { prompts: [session.question || EXAMPLE_QUESTION] } : {};
}

// Indent JSON, but keep lists of numbers on one line.
function indentJson(value) {
  let formatted;
  try {
    formatted = JSON.stringify(JSON.parse(value), null, 2);
  } catch {
    formatted = value;
  }
  formatted = formatted.replace(/\[\s+([-\d.eE+,\s]+?)\s+\]/g, (_, numbers) => `[${numbers.replace(/\s+/g, " ")}]`);
  return formatted.length > MAX_CHARACTERS ? `${formatted.slice(0, MAX_CHARACTERS)}\n…` : formatted;
}
