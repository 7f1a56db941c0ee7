// The Models view: every model with its state, inputs, outputs and settings; loading and unloading.

import { fetchCatalogue } from "./catalogue.js";
import { make, say } from "./dom.js";
import { count } from "./format.js";
import { text } from "./text.js";

const words = text.models;
const ID = "models";
const PATIENCE = 4000;
const FEW = 24;
// Facts that the card already shows.
const TOLD = new Set(["task type", "labels"]);

export const models = { id: ID, title: words.title, open };

function open(main, tools) {
  const told = make("p", { class: "hint", role: "status" });
  const said = make("p", { class: "notice panel", role: "alert", hidden: "" });
  const list = make("div", { class: "cards" });
  const cards = new Map();
  main.append(make("div", { class: "heading" }, make("h1", {}, words.title), told), said, list);
  let wanted = "";
  let timer = 0;
  let closed = false;
  let busy = "";

  async function look() {
    clearTimeout(timer);
    try {
      const [catalogue, repository] = await Promise.all([fetchCatalogue(tools.root), ask("")]);
      if (closed) return;
      show(merged(catalogue.models, repository.versions), repository.admin);
    } catch (error) {
      if (!closed) fail(error.message);
    }
    if (!closed) timer = setTimeout(turn, PATIENCE);
  }

  // Do not poll while the page is hidden; poll again when it becomes visible.
  function turn() {
    clearTimeout(timer);
    if (!document.hidden) look();
  }

  async function ask(path, method = "GET") {
    const url = new URL(`page/repository${path}`, tools.root);
    const headers = { "Charioteer-Page": location.origin };
    const response = await fetch(url, { method, headers }).catch(() => null);
    if (response === null) throw new Error(words.unreachable);
    const answer = await response.json().catch(() => ({}));
    if (!response.ok) throw new Error(answer.error ?? words.refused(response.status));
    return answer;
  }

  function fail(message) {
    say(said, message);
    said.hidden = !message;
  }

  async function change(name, action) {
    busy = name;
    fail("");
    say(told, words.doing[action](name));
    cards.get(name).wait(true);
    try {
      await ask(`/${encodeURIComponent(name)}/${action}`, "POST");
    } catch (error) {
      fail(words.failed[action](name, error.message));
    }
    busy = "";
    await look();
    cards.get(name)?.focus();
  }

  function show(found, admin) {
    for (const [name, card] of cards) {
      if (found.some((model) => model.name === name)) continue;
      card.element.remove();
      cards.delete(name);
    }
    found.forEach((model, place) => {
      if (!cards.has(model.name)) {
        const card = cardOf(model.name, { tools, change, choose });
        cards.set(model.name, card);
        list.insertBefore(card.element, list.children[place] ?? null);
      }
      cards.get(model.name).show(model, admin);
    });
    const ready = found.filter((model) => model.state === "READY").length;
    if (!busy) say(told, found.length ? words.summary(found.length, ready) : words.none);
    reveal();
  }

  function choose(name) {
    tools.go(ID, name === wanted ? {} : { model: name });
  }

  function reveal() {
    for (const [name, card] of cards) card.open(name === wanted);
  }

  document.addEventListener("visibilitychange", turn);
  look();
  return {
    change(parameters) {
      wanted = parameters.get("model") ?? "";
      reveal();
    },
    close() {
      closed = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", turn);
    },
  };
}

const BEST_FIRST = ["READY", "LOADING", "UNAVAILABLE"];

// One entry per model: the repository also lists models that were never loaded, the catalogue describes loaded ones.
function merged(catalogue, versions) {
  const found = new Map();
  for (const version of versions) {
    if (!found.has(version.name)) found.set(version.name, { name: version.name, versions: [], about: null });
    found.get(version.name).versions.push(version);
  }
  for (const entry of catalogue) {
    const model = found.get(entry.name);
    if (model !== undefined && entry.task_type && (model.about === null || entry.latest)) model.about = entry;
  }
  for (const model of found.values()) {
    model.state = BEST_FIRST.find((state) => model.versions.some((version) => version.state === state));
  }
  return [...found.values()].sort((one, other) => one.name.localeCompare(other.name));
}

function cardOf(name, { tools, change, choose }) {
  const id = `model-${crypto.getRandomValues(new Uint32Array(1))[0]}`;
  const title = make("button", { type: "button", class: "link", "aria-controls": id }, name);
  const state = make("span", { class: "badge" });
  const task = make("span", { class: "hint" });
  const tryIt = make("a", { href: `#try?${new URLSearchParams({ model: name })}` }, words.tryIt);
  const load = make("button", { type: "button", class: "plain" });
  const unload = make("button", { type: "button", class: "plain" }, words.unload);
  const reasons = make("div");
  const body = make("div", { id, class: "about-model" });
  const element = make(
    "section",
    { class: "panel card", "aria-label": name },
    make(
      "div",
      { class: "card-head" },
      make("h2", {}, title),
      state,
      task,
      make("span", { class: "acts" }, tryIt, load, unload),
    ),
    reasons,
    body,
  );
  let before = "";
  title.addEventListener("click", () => choose(name));
  load.addEventListener("click", () => change(name, "load"));
  unload.addEventListener("click", () => confirmed(name, element).then((yes) => yes && change(name, "unload")));
  return {
    element,
    focus: () => (unload.hidden ? (load.hidden ? title : load) : unload).focus(),
    wait(waiting) {
      for (const control of [load, unload]) control.disabled = waiting;
    },
    open(opened) {
      title.setAttribute("aria-expanded", opened);
      body.hidden = !opened;
    },
    show(model, admin) {
      const now = JSON.stringify([model, admin]);
      this.wait(false);
      // Leave an unchanged card alone, so that it keeps focus and selection.
      if (now === before) return;
      before = now;
      const ready = model.state === "READY";
      say(state, words.states[model.state]);
      state.dataset.state = model.state;
      say(task, model.about === null ? "" : words.task(model.about.task_type));
      tryIt.hidden = !ready;
      load.hidden = !admin || model.state === "LOADING";
      unload.hidden = !admin || !ready;
      say(load, ready ? words.reload : words.load);
      for (const button of [load, unload]) button.setAttribute("aria-label", `${button.textContent} ${name}`);
      tryIt.setAttribute("aria-label", `${words.tryIt} ${name}`);
      const failed = model.versions.filter((version) => version.reason);
      reasons.replaceChildren(
        ...failed.map((version) =>
          make("p", { class: version.wanted ? "reason" : "reason hint" }, words.reason(version.version, version.reason)),
        ),
      );
      body.replaceChildren(...details(model, tools.root));
    },
  };
}

// Resolve to true if the user confirms. Escape cancels, and the browser restores the focus.
function confirmed(name, element) {
  const no = make("button", { class: "plain", value: "", autofocus: "" }, words.cancel);
  const yes = make("button", { class: "plain danger", value: "yes" }, words.unload);
  const title = make("h2", { id: "sure" }, words.sure(name));
  const acts = make("form", { method: "dialog", class: "acts" }, no, yes);
  const dialog = make("dialog", { "aria-labelledby": "sure" }, title, make("p", {}, words.consequence), acts);
  element.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
  });
}

function details({ name, versions, about }, root) {
  const at = (path) => new URL(path, root).href;
  const path = `v2/models/${encodeURIComponent(name)}`;
  const parts = [
    table(
      words.versions,
      words.versionColumns,
      versions.map((version) => [version.version, words.states[version.state]]),
    ),
  ];
  if (about !== null) {
    const shape = ({ name: tensor, datatype, shape: sizes }) => {
      return [tensor, datatype, `[${sizes.map((size) => (size < 0 ? words.any : size)).join(", ")}]`];
    };
    const parameters = Object.entries(about.parameters).map(([key, schema]) => [
      key,
      kind(schema),
      written(schema.default),
    ]);
    const facts = about.facts
      .filter((fact) => !TOLD.has(fact.topic))
      .map((fact) => [fact.topic, fact.value, fact.origin]);
    parts.push(
      table(words.inputs, words.tensorColumns, about.inputs.map(shape)),
      table(words.outputs, words.tensorColumns, about.outputs.map(shape)),
      table(words.parameters, words.parameterColumns, parameters),
      labels(about.labels),
      table(words.facts, words.factColumns, facts, "wide"),
    );
  }
  const links = [
    [`#request?${new URLSearchParams({ model: name })}`, words.links.request],
    [at(path), words.links.metadata],
    [at(`${path}/stats`), words.links.statistics],
    [at("schema"), words.links.schema],
  ];
  const shown = about === null ? links.slice(-1) : links;
  parts.push(
    make(
      "div",
      {},
      make("h3", {}, words.more),
      make("ul", { class: "links" }, ...shown.map(([href, label]) => make("li", {}, make("a", { href }, label)))),
    ),
  );
  return parts.filter((part) => part !== null);
}

function labels(names) {
  if (!names.length) return null;
  const chips = make("ul", { class: "chips" }, ...names.slice(0, FEW).map((label) => make("li", {}, label)));
  const more = make("button", { type: "button", class: "link" }, words.allLabels(count(names.length)));
  more.hidden = names.length <= FEW;
  more.addEventListener("click", () => {
    chips.append(...names.slice(FEW).map((label) => make("li", {}, label)));
    more.hidden = true;
  });
  return make("div", { class: "wide" }, make("h3", {}, words.labels(count(names.length))), chips, more);
}

function table(title, heads, rows, kind = "") {
  if (!rows.length) return null;
  const head = make("tr", {}, ...heads.map((heading) => make("th", { scope: "col" }, heading)));
  const cells = ([first, ...rest]) =>
    make("tr", {}, make("th", { scope: "row" }, first), ...rest.map((cell) => make("td", {}, cell)));
  const body = make("tbody", {}, ...rows.map(cells));
  const inner = make("table", { class: "words", "aria-label": title }, make("thead", {}, head), body);
  return make("div", { class: kind }, make("h3", {}, title), make("div", { class: "scrolls" }, inner));
}

function kind(schema) {
  const one = schema.type ?? (schema.enum ?? []).map(written).join(", ") ?? "";
  const inner = schema.anyOf
    ? schema.anyOf
        .map((option) => kind(option))
        .filter((option) => option !== "null")
        .join(", ")
    : [one].flat().join(", ");
  const { minimum, maximum } = schema;
  if (minimum !== undefined && maximum !== undefined) return words.between(inner, minimum, maximum);
  return minimum === undefined ? inner : words.least(inner, minimum);
}

function written(value) {
  return value === undefined || value === null ? "–" : typeof value === "string" ? value : JSON.stringify(value);
}
