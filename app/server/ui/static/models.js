// The Models view: every model with its state, inputs, outputs and settings; loading and unloading.

import { fetchCatalogue } from "./catalogue.js";
import { make, setText } from "./dom.js";
import { count } from "./format.js";
import { text } from "./text.js";

const strings = text.models;
const ID = "models";
const POLL_MS = 4000;
const MAX_LABELS = 24;
// Facts that the card already shows.
const SHOWN_IN_CARD = new Set(["task type", "labels"]);

export const models = { id: ID, title: strings.title, open };

function open(main, tools) {
  const status = make("p", { class: "hint", role: "status" });
  const notice = make("p", { class: "notice panel", role: "alert", hidden: "" });
  const list = make("div", { class: "cards" });
  const cards = new Map();
  main.append(make("div", { class: "heading" }, make("h1", {}, strings.title), status), notice, list);
  let selected = "";
  let timer = 0;
  let closed = false;
  let busyModel = "";

  async function poll() {
    clearTimeout(timer);
    try {
      const [catalogue, repository] = await Promise.all([fetchCatalogue(tools.root), fetchRepository("")]);
      if (closed) return;
      show(mergeModels(catalogue.models, repository.versions), repository.admin);
    } catch (error) {
      if (!closed) showError(error.message);
    }
    if (!closed) timer = setTimeout(pollIfVisible, POLL_MS);
  }

  // Do not poll while the page is hidden; poll again when it becomes visible.
  function pollIfVisible() {
    clearTimeout(timer);
    if (!document.hidden) poll();
  }

  async function fetchRepository(path, method = "GET") {
    const url = new URL(`page/repository${path}`, tools.root);
    const headers = { "Charioteer-Page": location.origin };
    const response = await fetch(url, { method, headers }).catch(() => null);
    if (response === null) throw new Error(strings.unreachable);
    const answer = await response.json().catch(() => ({}));
    if (!response.ok) throw new Error(answer.error ?? strings.refused(response.status));
    return answer;
  }

  function showError(message) {
    setText(notice, message);
    notice.hidden = !message;
  }

  async function change(name, action) {
    busyModel = name;
    showError("");
    setText(status, strings.inProgress[action](name));
    cards.get(name).setBusy(true);
    try {
      await fetchRepository(`/${encodeURIComponent(name)}/${action}`, "POST");
    } catch (error) {
      showError(strings.actionFailed[action](name, error.message));
    }
    busyModel = "";
    await poll();
    cards.get(name)?.focus();
  }

  function show(models, admin) {
    for (const [name, card] of cards) {
      if (models.some((model) => model.name === name)) continue;
      card.element.remove();
      cards.delete(name);
    }
    models.forEach((model, index) => {
      if (!cards.has(model.name)) {
        const card = createCard(model.name, { tools, change, select });
        cards.set(model.name, card);
        list.insertBefore(card.element, list.children[index] ?? null);
      }
      cards.get(model.name).show(model, admin);
    });
    const ready = models.filter((model) => model.state === "READY").length;
    if (!busyModel) setText(status, models.length ? strings.summary(models.length, ready) : strings.noModels);
    updateSelection();
  }

  function select(name) {
    tools.go(ID, name === selected ? {} : { model: name });
  }

  function updateSelection() {
    for (const [name, card] of cards) card.open(name === selected);
  }

  document.addEventListener("visibilitychange", pollIfVisible);
  poll();
  return {
    change(parameters) {
      selected = parameters.get("model") ?? "";
      updateSelection();
    },
    close() {
      closed = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", pollIfVisible);
    },
  };
}

const STATES_BEST_FIRST = ["READY", "LOADING", "UNAVAILABLE"];

// One entry per model: the repository also lists models that were never loaded, the catalogue describes loaded ones.
function mergeModels(catalogue, versions) {
  const models = new Map();
  for (const version of versions) {
    if (!models.has(version.name)) models.set(version.name, { name: version.name, versions: [], about: null });
    models.get(version.name).versions.push(version);
  }
  for (const entry of catalogue) {
    const model = models.get(entry.name);
    if (model !== undefined && entry.task_type && (model.about === null || entry.latest)) model.about = entry;
  }
  for (const model of models.values()) {
    model.state = STATES_BEST_FIRST.find((state) => model.versions.some((version) => version.state === state));
  }
  return [...models.values()].sort((left, right) => left.name.localeCompare(right.name));
}

function createCard(name, { tools, change, select }) {
  const id = `model-${crypto.getRandomValues(new Uint32Array(1))[0]}`;
  const title = make("button", { type: "button", class: "link", "aria-controls": id }, name);
  const state = make("span", { class: "badge" });
  const task = make("span", { class: "hint" });
  const tryIt = make("a", { href: `#try?${new URLSearchParams({ model: name })}` }, strings.tryIt);
  const load = make("button", { type: "button", class: "plain" });
  const unload = make("button", { type: "button", class: "plain" }, strings.unload);
  const reasons = make("div");
  const body = make("div", { id, class: "model-details" });
  const element = make(
    "section",
    { class: "panel card", "aria-label": name },
    make(
      "div",
      { class: "card-header" },
      make("h2", {}, title),
      state,
      task,
      make("span", { class: "actions" }, tryIt, load, unload),
    ),
    reasons,
    body,
  );
  let previous = "";
  title.addEventListener("click", () => select(name));
  load.addEventListener("click", () => change(name, "load"));
  unload.addEventListener("click", () => confirmUnload(name, element).then((yes) => yes && change(name, "unload")));
  return {
    element,
    focus: () => (unload.hidden ? (load.hidden ? title : load) : unload).focus(),
    setBusy(waiting) {
      for (const control of [load, unload]) control.disabled = waiting;
    },
    open(opened) {
      title.setAttribute("aria-expanded", opened);
      body.hidden = !opened;
    },
    show(model, admin) {
      const current = JSON.stringify([model, admin]);
      this.setBusy(false);
      // Leave an unchanged card alone, so that it keeps focus and selection.
      if (current === previous) return;
      previous = current;
      const ready = model.state === "READY";
      setText(state, strings.states[model.state]);
      state.dataset.state = model.state;
      setText(task, model.about === null ? "" : strings.task(model.about.task_type));
      tryIt.hidden = !ready;
      load.hidden = !admin || model.state === "LOADING";
      unload.hidden = !admin || !ready;
      setText(load, ready ? strings.reload : strings.load);
      for (const button of [load, unload]) button.setAttribute("aria-label", `${button.textContent} ${name}`);
      tryIt.setAttribute("aria-label", `${strings.tryIt} ${name}`);
      const failed = model.versions.filter((version) => version.reason);
      reasons.replaceChildren(
        ...failed.map(({ version, reason, wanted }) =>
          make("p", { class: wanted ? "reason" : "reason hint" }, strings.reason(version, reason)),
        ),
      );
      body.replaceChildren(...details(model, tools.root));
    },
  };
}

// Resolve to true if the user confirms. Escape cancels, and the browser restores the focus.
function confirmUnload(name, element) {
  const no = make("button", { class: "plain", value: "", autofocus: "" }, strings.cancel);
  const yes = make("button", { class: "plain danger", value: "yes" }, strings.unload);
  const title = make("h2", { id: "confirm" }, strings.confirmUnload(name));
  const actions = make("form", { method: "dialog", class: "actions" }, no, yes);
  const dialog = make("dialog", { "aria-labelledby": "confirm" }, title, make("p", {}, strings.unloadNote), actions);
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
  const urlOf = (path) => new URL(path, root).href;
  const path = `v2/models/${encodeURIComponent(name)}`;
  const sections = [
    table(
      strings.versions,
      strings.versionColumns,
      versions.map((version) => [version.version, strings.states[version.state]]),
    ),
  ];
  if (about !== null) {
    const shape = ({ name: tensor, datatype, shape: sizes }) => {
      return [tensor, datatype, `[${sizes.map((size) => (size < 0 ? strings.anySize : size)).join(", ")}]`];
    };
    const parameters = Object.entries(about.parameters).map(([key, schema]) => [
      key,
      typeText(schema),
      valueText(schema.default),
    ]);
    const facts = about.facts
      .filter((fact) => !SHOWN_IN_CARD.has(fact.topic))
      .map((fact) => [fact.topic, fact.value, fact.origin]);
    sections.push(
      table(strings.inputs, strings.tensorColumns, about.inputs.map(shape)),
      table(strings.outputs, strings.tensorColumns, about.outputs.map(shape)),
      table(strings.parameters, strings.parameterColumns, parameters),
      labels(about.labels),
      table(strings.facts, strings.factColumns, facts, "wide"),
    );
  }
  const links = [
    [`#request?${new URLSearchParams({ model: name })}`, strings.links.request],
    [urlOf(path), strings.links.metadata],
    [urlOf(`${path}/stats`), strings.links.statistics],
    [urlOf("schema"), strings.links.schema],
  ];
  const shown = about === null ? links.slice(-1) : links;
  sections.push(
    make(
      "div",
      {},
      make("h3", {}, strings.more),
      make("ul", { class: "links" }, ...shown.map(([href, label]) => make("li", {}, make("a", { href }, label)))),
    ),
  );
  return sections.filter((section) => section !== null);
}

function labels(names) {
  if (!names.length) return null;
  const chips = make("ul", { class: "chips" }, ...names.slice(0, MAX_LABELS).map((label) => make("li", {}, label)));
  const moreButton = make("button", { type: "button", class: "link" }, strings.allLabels(count(names.length)));
  moreButton.hidden = names.length <= MAX_LABELS;
  moreButton.addEventListener("click", () => {
    chips.append(...names.slice(MAX_LABELS).map((label) => make("li", {}, label)));
    moreButton.hidden = true;
  });
  return make("div", { class: "wide" }, make("h3", {}, strings.labels(count(names.length))), chips, moreButton);
}

function table(title, headings, rows, kind = "") {
  if (!rows.length) return null;
  const head = make("tr", {}, ...headings.map((heading) => make("th", { scope: "col" }, heading)));
  const cells = ([first, ...rest]) =>
    make("tr", {}, make("th", { scope: "row" }, first), ...rest.map((cell) => make("td", {}, cell)));
  const body = make("tbody", {}, ...rows.map(cells));
  const content = make("table", { class: "text-table", "aria-label": title }, make("thead", {}, head), body);
  return make("div", { class: kind }, make("h3", {}, title), make("div", { class: "scrollable" }, content));
}

function typeText(schema) {
  const ownType = schema.type ?? (schema.enum ?? []).map(valueText).join(", ") ?? "";
  const content = schema.anyOf
    ? schema.anyOf
        .map((option) => typeText(option))
        .filter((option) => option !== "null")
        .join(", ")
    : [ownType].flat().join(", ");
  const { minimum, maximum } = schema;
  if (minimum !== undefined && maximum !== undefined) return strings.between(content, minimum, maximum);
  return minimum === undefined ? content : strings.minimum(content, minimum);
}

function valueText(value) {
  return value === undefined || value === null ? "–" : typeof value === "string" ? value : JSON.stringify(value);
}
