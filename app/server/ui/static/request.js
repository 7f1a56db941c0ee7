// The view Use in code: one inference as Python and curl, and its request and response, in each protocol.

import { chooseModel, fetchCatalogue, inputKind, readyModels } from "./catalogue.js";
import { button, choice, copy, field, notice, switcher } from "./controls.js";
import { make, setText } from "./dom.js";
import { bytes, count } from "./format.js";
import { highlighted } from "./highlight.js";
import { bodyOf, sendRequest } from "./inference.js";
import { PROTOCOLS, addressOf, bodyText } from "./protocols.js";
import { loadSample, sampleFor } from "./samples.js";
import { session } from "./session.js";
import { curl, python } from "./snippets.js";
import { text } from "./text.js";
import { exampleTensors, readTensors } from "./try_text.js";

const strings = text.request;
const ID = "request";
const PROTOCOL_IDS = Object.keys(PROTOCOLS);
const MAX_CHARACTERS = 40_000;
const MAX_IMAGES = 4;

export const requestView = { id: ID, title: strings.title, open };

function open(main, tools) {
  const message = notice();
  const select = choice([], (model) => tools.go(ID, { model, protocol }));
  const tabs = switcher(
    strings.protocol,
    PROTOCOL_IDS.map((id) => [id, strings.protocols[id]]),
    (id) => tools.go(ID, { ...currentModel(), protocol: id }),
  );
  const about = make("p", { class: "hint" });
  const note = make("p", { class: "hint" });
  const send = button(strings.send, onsend, "primary");
  const status = make("p", { class: "hint", role: "status" }, strings.unsent);
  const request = codeBlock(strings.request);
  const response = codeBlock(strings.response);
  const decoded = codeBlock(strings.decoded);
  const command = codeBlock(strings.curl, "shell");
  const program = codeBlock(strings.python, "python");
  const folderHint = make("p", { class: "hint" });
  const panel = (name, ...parts) =>
    make("section", { class: "panel", "aria-label": name }, make("h2", {}, name), ...parts);
  const body = make(
    "div",
    { class: "request-panels", hidden: "" },
    panel(strings.python, program.element),
    panel(strings.curl, command.element, folderHint),
    panel(strings.request, request.element, note, make("div", { class: "row" }, send)),
    panel(strings.response, status, response.element, decoded.element),
  );
  main.append(
    make(
      "div",
      { class: "toolbar" },
      make("h1", {}, strings.title),
      make("div", { class: "model-select" }, field(strings.model, select)),
    ),
    tabs.element,
    message.element,
    about,
    body,
  );
  let catalogue = null;
  let [model, protocol] = [null, PROTOCOL_IDS[0]];
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
      message.show(text.try.noModels);
      return;
    }
    protocol = PROTOCOL_IDS.includes(requested.get("protocol")) ? requested.get("protocol") : PROTOCOL_IDS[0];
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
      if (name !== null && name !== model.name) message.show(text.try.notReady(name));
    } catch (error) {
      if (requested !== address) return;
      body.hidden = true;
      message.showError(error);
    }
  }

  // The last input of the Try view, or an example.
  async function dataFor(selected) {
    const kind = inputKind(selected.task_type);
    if (kind === "text") return [session.text || text.try.textExample];
    if (kind === "tensor")
      return [readTensors((session.model === selected.name && session.tensors) || exampleTensors(selected), selected)];
    if (session.images.length) return session.images.slice(0, MAX_IMAGES);
    const sample = sampleFor(catalogue, selected.task_type);
    if (sample === undefined) throw new Error(text.try.needsImage);
    session.images = [await loadSample(tools.root, sample)];
    return session.images;
  }

  function write() {
    if (closed) return;
    tools.save({ ...currentModel(), protocol });
    const written = PROTOCOLS[protocol].write(exchange());
    const isDisabled = written.port !== undefined && catalogue.ports[written.port] === null;
    const refusal = isDisabled ? strings.disabled[written.port] : written.refusal;
    body.hidden = refusal !== undefined;
    if (refusal !== undefined) {
      message.show(refusal);
      return;
    }
    setText(about, strings.about(data.map((datum) => datum.name ?? shortText(datum)).join(", "), model.name));
    const notes = [written.note, written.port === "grpc" ? strings.grpcBytes : "", written.port ? strings.proxied : ""];
    if (protocol === "v2" && model.name.startsWith("m-")) notes.push(strings.chariotNames);
    setText(note, notes.filter(Boolean).join(" "));
    showRequest(written);
    const images = data.filter((datum) => datum.blob).map((datum) => datum.name);
    command.element.parentElement.hidden = protocol === "grpc";
    command.show(protocol === "grpc" ? "" : curl(written, exchange()));
    setText(folderHint, images.length ? strings.folder(images.join(", ")) : "");
    program.show(python(written, exchange()), protocol === "grpc" ? strings.needs('"tritonclient[grpc]"') : "");
    setText(status, strings.unsent);
    response.show("");
    decoded.show("");
  }

  function showRequest(written) {
    const address = addressOf(written, tools.root, catalogue);
    const first = written.port === "grpc" ? `${address} ${written.path}` : `POST ${address}`;
    const headers = Object.entries(written.headers).map(([name, value]) => `${name}: ${value}`);
    const size = (index) => fileSize(data[index].blob.size);
    let content;
    if (written.raw !== null) content = strings.binary(data[written.raw].name, size(written.raw));
    else {
      const placeholder = (index) => strings.elided(fileSize(Math.ceil(data[index].blob.size / 3) * 4));
      const lines = written.body.lines ?? [written.body];
      content = lines.map((line) => indentJson(bodyText(line, placeholder))).join("\n");
    }
    request.show([first, ...headers, "", content].join("\n"), "", async () => {
      const body = await bodyOf(written, data);
      return typeof body === "string" ? body : null;
    });
    request.allowCopy(written.raw === null);
  }

  async function onsend() {
    message.clear();
    sending.abort();
    sending = new AbortController();
    setText(status, strings.sending);
    try {
      const result = await sendRequest(protocol, { ...exchange(), signal: sending.signal });
      setText(status, strings.status(result.response.status, count(result.milliseconds)));
      const headers = Object.entries(result.response.headers).map(([name, value]) => `${name}: ${value}`);
      const answer = result.response.text;
      response.show([...headers, "", indentJson(answer)].join("\n"), "", async () => answer);
      decoded.show(protocol === "grpc" ? decodeElements(answer) : "");
    } catch (error) {
      if (error.name === "AbortError") return;
      setText(status, strings.unsent);
      response.show("");
      decoded.show("");
      message.showError(error);
    }
  }

  fetchCatalogue(tools.root).then(
    (result) => {
      if (closed) return;
      catalogue = result;
      tools.about(text.version(catalogue.version));
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
  return inputKind(model.task_type) === "question" ? { prompts: [session.question || text.try.exampleQuestion] } : {};
}

function shortText(value) {
  if (typeof value !== "string") return Object.keys(value).join(", ");
  return value.length > 40 ? `“${value.slice(0, 40)}…”` : `“${value}”`;
}

function fileSize(size) {
  return size < 2 ** 20 ? `${count(Math.ceil(size / 1024))} kB` : bytes(size);
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

// Decode the BYTES elements of a gRPC answer: typed, or raw with a 4-byte little-endian length before each.
function decodeElements(answer) {
  const result = [];
  try {
    const { outputs, raw_output_contents: raw } = JSON.parse(answer);
    const bytes = (base64) => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    outputs.forEach(({ datatype, contents }, index) => {
      if (datatype !== "BYTES") return;
      result.push(...(contents?.bytes_contents ?? []).map((element) => new TextDecoder().decode(bytes(element))));
      if (!raw) return;
      const all = bytes(raw[index]);
      const view = new DataView(all.buffer);
      for (let offset = 0; offset + 4 <= all.length; offset += 4 + view.getUint32(offset, true)) {
        result.push(new TextDecoder().decode(all.subarray(offset + 4, offset + 4 + view.getUint32(offset, true))));
      }
    });
  } catch {
    return "";
  }
  return result.map(indentJson).join("\n");
}

// A text with a copy button: { element, show(value, hint, loadFull), allowCopy(allowed) }. `loadFull()` returns the
// text to copy if it differs.
function codeBlock(name, language = "json") {
  const code = make("code");
  const pre = make("pre", { tabindex: "0", role: "group", "aria-label": name }, code);
  const hint = make("p", { class: "hint", hidden: "" });
  const copyButton = button(strings.copy, async () =>
    copy(copyButton, strings, (await loadFull?.()) ?? code.textContent),
  );
  copyButton.setAttribute("aria-label", `${strings.copy}: ${name}`);
  let loadFull = null;
  // Browsers allow the clipboard only over HTTPS or on a loopback address.
  const canCopy = window.isSecureContext;
  copyButton.hidden = !canCopy;
  const row = make("div", { class: "code-row" }, pre, copyButton);
  const element = make("div", { class: "block", hidden: "" }, row, hint);
  return {
    element,
    show(value, note = "", load = null) {
      element.hidden = !value;
      loadFull = load;
      code.replaceChildren(...highlighted(value, language));
      hint.hidden = !note;
      setText(hint, note);
      copyButton.hidden = !canCopy;
    },
    allowCopy(allowed) {
      copyButton.hidden = !canCopy || !allowed;
    },
  };
}
