// The Request view: the request and response of one inference in each protocol.

import { choices, chosen, fetchCatalogue, sortOf } from "./catalogue.js";
import { button, choice, copy, field, notice, switcher } from "./controls.js";
import { make, say } from "./dom.js";
import { bytes, count } from "./format.js";
import { bodyOf, exchangeBy } from "./inference.js";
import { loadSample, sampleFor } from "./images.js";
import { PROTOCOLS, addressOf, bodyText } from "./protocols.js";
import { session } from "./session.js";
import { curl, python } from "./snippets.js";
import { text } from "./text.js";
import { example, readTensors } from "./try_text.js";

const words = text.request;
const ID = "request";
const ALL = Object.keys(PROTOCOLS);
const LONGEST = 40_000;
const MOST_PICTURES = 4;

export const requestView = { id: ID, title: words.title, open };

function open(main, tools) {
  const fault = notice();
  const select = choice([], (model) => tools.go(ID, { model, protocol }));
  const tabs = switcher(
    words.protocol,
    ALL.map((id) => [id, words.protocols[id]]),
    (id) => tools.go(ID, { ...asked(), protocol: id }),
  );
  const about = make("p", { class: "hint" });
  const note = make("p", { class: "hint" });
  const send = button(words.send, sendIt, "main");
  const status = make("p", { class: "hint", role: "status" }, words.unsent);
  const request = block(words.request);
  const response = block(words.response);
  const decoded = block(words.decoded);
  const shell = block(words.curl);
  const program = block(words.python);
  const folder = make("p", { class: "hint" });
  const panel = (name, ...parts) =>
    make("section", { class: "panel", "aria-label": name }, make("h2", {}, name), ...parts);
  const body = make(
    "div",
    { class: "wire", hidden: "" },
    panel(words.request, request.element, note, make("div", { class: "row" }, send)),
    panel(words.response, status, response.element, decoded.element),
    panel(words.curl, shell.element, folder),
    panel(words.python, program.element),
  );
  main.append(
    make(
      "div",
      { class: "toolbar" },
      make("h1", {}, words.title),
      make("div", { class: "picking" }, field(words.model, select)),
    ),
    tabs.element,
    fault.element,
    about,
    body,
  );
  let catalogue = null;
  let [model, protocol] = [null, ALL[0]];
  let [data, parameters] = [[], {}];
  let sending = new AbortController();
  let closed = false;
  let wanted = new URLSearchParams();

  const exchange = () => ({ root: tools.root, catalogue, model, data, parameters });

  // The user may choose a protocol before the models are loaded.
  function asked() {
    const name = model?.name ?? wanted.get("model");
    return name === null ? {} : { model: name };
  }

  async function show() {
    fault.clear();
    const mine = wanted;
    const found = chosen(catalogue, mine.get("model") ?? session.model);
    if (found === undefined) {
      fault.tell(text.try.noModels);
      return;
    }
    protocol = ALL.includes(mine.get("protocol")) ? mine.get("protocol") : ALL[0];
    tabs.choose(protocol);
    select.value = found.name;
    sending.abort();
    try {
      const given = await dataFor(found);
      // The user may have changed the address meanwhile.
      if (mine !== wanted) return;
      model = found;
      data = given;
      parameters = session.model === model.name ? session.parameters : defaults(model);
      write();
      const name = mine.get("model");
      if (name !== null && name !== model.name) fault.tell(text.try.notReady(name));
    } catch (error) {
      if (mine !== wanted) return;
      body.hidden = true;
      fault.fail(error.message);
    }
  }

  // The last input of the Try view, or an example.
  async function dataFor(found) {
    const sort = sortOf(found.task_type);
    if (sort === "text") return [session.text || text.try.textExample];
    if (sort === "tensor")
      return [readTensors((session.model === found.name && session.tensors) || example(found), found)];
    if (session.pictures.length) return session.pictures.slice(0, MOST_PICTURES);
    const sample = sampleFor(catalogue, found.task_type);
    if (sample === undefined) throw new Error(text.try.needsPicture);
    session.pictures = [await loadSample(tools.root, sample)];
    return session.pictures;
  }

  function write() {
    if (closed) return;
    const written = PROTOCOLS[protocol].write(exchange());
    const off = written.port !== undefined && catalogue.ports[written.port] === null;
    body.hidden = off;
    if (off) {
      fault.tell(words.off[written.port]);
      return;
    }
    say(about, words.about(data.map((datum) => datum.name ?? shortText(datum)).join(", "), model.name));
    const notes = [written.note, written.port === "grpc" ? words.grpcBytes : "", written.port ? words.way : ""];
    if (protocol === "v2" && model.name.startsWith("m-")) notes.push(words.chariotsNames);
    say(note, notes.filter(Boolean).join(" "));
    showRequest(written);
    const pictures = data.filter((datum) => datum.blob).map((datum) => datum.name);
    shell.element.parentElement.hidden = protocol === "grpc";
    shell.show(protocol === "grpc" ? "" : curl(written, exchange()));
    say(folder, pictures.length ? words.folder(pictures.join(", ")) : "");
    program.show(python(written, exchange()), protocol === "grpc" ? words.needs('"tritonclient[grpc]"') : "");
    say(status, words.unsent);
    response.show("");
    decoded.show("");
  }

  function showRequest(written) {
    const address = addressOf(written, tools.root, catalogue);
    const first = written.port === "grpc" ? `${address} ${written.path}` : `POST ${address}`;
    const headers = Object.entries(written.headers).map(([name, value]) => `${name}: ${value}`);
    const size = (index) => bytesOf(data[index].blob.size);
    let said;
    if (written.raw !== null) said = words.binary(data[written.raw].name, size(written.raw));
    else {
      const elided = (index) => words.elided(bytesOf(Math.ceil(data[index].blob.size / 3) * 4));
      const lines = written.body.lines ?? [written.body];
      said = lines.map((line) => pretty(bodyText(line, elided))).join("\n");
    }
    request.show([first, ...headers, "", said].join("\n"), "", async () => {
      const whole = await bodyOf(written, data);
      return typeof whole === "string" ? whole : null;
    });
    request.copyable(written.raw === null);
  }

  async function sendIt() {
    fault.clear();
    sending.abort();
    sending = new AbortController();
    say(status, words.sending);
    try {
      const found = await exchangeBy(protocol, { ...exchange(), signal: sending.signal });
      say(status, words.status(found.response.status, count(found.milliseconds)));
      const headers = Object.entries(found.response.headers).map(([name, value]) => `${name}: ${value}`);
      const answer = found.response.text;
      response.show([...headers, "", pretty(answer)].join("\n"), "", async () => answer);
      decoded.show(protocol === "grpc" ? elementsOf(answer) : "");
    } catch (error) {
      if (error.name === "AbortError") return;
      say(status, words.unsent);
      fault.fail(error.message);
    }
  }

  fetchCatalogue(tools.root).then(
    (found) => {
      if (closed) return;
      catalogue = found;
      tools.about(text.version(catalogue.version));
      select.fill(choices(catalogue).map(({ name }) => [name, name]));
      show();
    },
    (error) => fault.fail(error.message),
  );
  return {
    change(next) {
      wanted = next;
      if (catalogue !== null) show();
    },
    close() {
      closed = true;
      sending.abort();
    },
  };
}

function defaults(model) {
  return sortOf(model.task_type) === "question" ? { prompts: [session.question || text.try.example] } : {};
}

function shortText(value) {
  if (typeof value !== "string") return Object.keys(value).join(", ");
  return value.length > 40 ? `“${value.slice(0, 40)}…”` : `“${value}”`;
}

function bytesOf(size) {
  return size < 2 ** 20 ? `${count(Math.ceil(size / 1024))} kB` : bytes(size);
}

// Indent JSON, but keep lists of numbers on one line.
function pretty(value) {
  let read;
  try {
    read = JSON.stringify(JSON.parse(value), null, 2);
  } catch {
    read = value;
  }
  read = read.replace(/\[\s+([-\d.eE+,\s]+?)\s+\]/g, (_, numbers) => `[${numbers.replace(/\s+/g, " ")}]`);
  return read.length > LONGEST ? `${read.slice(0, LONGEST)}\n…` : read;
}

// Decode the BYTES elements of a gRPC answer: typed, or raw with a 4-byte little-endian length before each.
function elementsOf(answer) {
  const found = [];
  try {
    const { outputs, raw_output_contents: raw } = JSON.parse(answer);
    const bytes = (base64) => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    outputs.forEach(({ datatype, contents }, place) => {
      if (datatype !== "BYTES") return;
      found.push(...(contents?.bytes_contents ?? []).map((element) => new TextDecoder().decode(bytes(element))));
      if (!raw) return;
      const all = bytes(raw[place]);
      const view = new DataView(all.buffer);
      for (let at = 0; at + 4 <= all.length; at += 4 + view.getUint32(at, true)) {
        found.push(new TextDecoder().decode(all.subarray(at + 4, at + 4 + view.getUint32(at, true))));
      }
    });
  } catch {
    return "";
  }
  return found.map(pretty).join("\n");
}

// A text with a copy button: { element, show(value, hint, loadFull), allowCopy(allowed) }. `loadFull()` returns the
// text to copy if it differs.
function block(name) {
  const code = make("code");
  const pre = make("pre", { tabindex: "0", role: "group", "aria-label": name }, code);
  const hint = make("p", { class: "hint", hidden: "" });
  const press = button(words.copy, async () => copy(press, words, (await whole?.()) ?? code.textContent));
  press.setAttribute("aria-label", `${words.copy}: ${name}`);
  let whole = null;
  // Browsers allow the clipboard only over HTTPS or on a loopback address.
  const able = window.isSecureContext;
  press.hidden = !able;
  const element = make("div", { class: "block", hidden: "" }, make("div", { class: "shell" }, pre, press), hint);
  return {
    element,
    show(value, said = "", given = null) {
      element.hidden = !value;
      whole = given;
      say(code, value);
      hint.hidden = !said;
      say(hint, said);
      press.hidden = !able;
    },
    copyable(is) {
      press.hidden = !able || !is;
    },
  };
}
