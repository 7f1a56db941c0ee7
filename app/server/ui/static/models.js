// The Models view: every model with its state, inputs, outputs and settings; loading and unloading.

import { fetchCatalogue } from "./catalogue.js";
import { requestJson } from "./connection.js";
import { notice } from "./controls.js";
import { make, setText } from "./dom.js";
import { bytes, count, milliseconds, smallBytes } from "./format.js";
import { modelDetails } from "./model_details.js";
import { text } from "./text.js";

const strings = text.models;
const ID = "models";
const POLL_MS = 4000;

export const models = { id: ID, title: strings.title, open };

function open(main, tools) {
  const status = make("p", { class: "hint", role: "status" });
  const message = notice();
  const columns = Object.entries(strings.columns).map(([key, label]) =>
    make("th", { scope: "col", class: `col-${key}` }, label),
  );
  const table = make("table", { class: "text-table models-table" }, make("thead", {}, make("tr", {}, ...columns)));
  const entries = new Map();
  main.append(make("div", { class: "heading" }, make("h1", {}, strings.title), status), message.element, make("section", { class: "panel", "aria-label": strings.title }, table));
  let selected = "";
  let timer = 0;
  let closed = false;
  let busyModel = "";

  async function poll() {
    clearTimeout(timer);
    try {
      const [catalogue, repository] = await Promise.all([fetchCatalogue(tools.root), fetchRepository("")]);
      if (closed) return;
      show(mergeModels(catalogue, repository.versions), repository.admin, catalogue.memory);
    } catch (error) {
      if (!closed) message.showError(error);
    }
    if (!closed) timer = setTimeout(pollIfVisible, POLL_MS);
  }

  // Do not poll while the page is hidden; poll again when it becomes visible.
  function pollIfVisible() {
    clearTimeout(timer);
    if (!document.hidden) poll();
  }

  function fetchRepository(path, method = "GET") {
    const headers = { "Charioteer-Page": location.origin };
    return requestJson(new URL(`page/repository${path}`, tools.root), { method, headers });
  }

  async function change(name, action) {
    busyModel = name;
    message.clear();
    setText(status, strings.inProgress[action](name));
    entries.get(name).setBusy(true);
    try {
      await fetchRepository(`/${encodeURIComponent(name)}/${action}`, "POST");
    } catch (error) {
      message.showError(strings.actionFailed[action](name, error.message));
    }
    busyModel = "";
    await poll();
    entries.get(name)?.focus();
  }

  function show(models, admin, memory) {
    for (const [name, entry] of entries) {
      if (models.some((model) => model.name === name)) continue;
      entry.element.remove();
      entries.delete(name);
    }
    models.forEach((model, index) => {
      if (!entries.has(model.name)) {
        const entry = createEntry(model.name, { tools, change, select });
        entries.set(model.name, entry);
        table.insertBefore(entry.element, table.tBodies[index] ?? null);
      }
      entries.get(model.name).show(model, admin);
    });
    const ready = models.filter((model) => model.state === "READY").length;
    if (!busyModel) setText(status, models.length ? strings.summary(models.length, ready, bytes(memory)) : strings.noModels);
    updateSelection();
  }

  function select(name) {
    tools.go(ID, name === selected ? {} : { model: name });
  }

  function updateSelection() {
    for (const [name, entry] of entries) entry.open(name === selected);
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

const NO_USAGE = { requests: 0, latency: null, last_used: null };
const STATES_BEST_FIRST = ["READY", "LOADING", "UNAVAILABLE"];

// One entry per model: the repository also lists models that were never loaded, the catalogue describes loaded ones.
function mergeModels({ models: catalogue, usage }, versions) {
  const models = new Map();
  for (const version of versions) {
    if (!models.has(version.name)) models.set(version.name, { name: version.name, versions: [], memories: [], about: null });
    models.get(version.name).versions.push(version);
  }
  // The memory of a process changes all the time, and must not redraw the details.
  for (const { memory, ...entry } of catalogue) {
    const model = models.get(entry.name);
    if (model === undefined) continue;
    if (entry.state === "READY") model.memories.push(memory);
    if (entry.task_type && (model.about === null || entry.latest)) model.about = entry;
  }
  for (const model of models.values()) {
    const { memories } = model;
    model.memory = !memories.length || memories.includes(null) ? null : memories.reduce((sum, value) => sum + value);
    delete model.memories;
    model.usage = usage[model.name] ?? NO_USAGE;
    model.state = STATES_BEST_FIRST.find((state) => model.versions.some((version) => version.state === state));
  }
  return [...models.values()].sort((left, right) => left.name.localeCompare(right.name));
}

function createEntry(name, { tools, change, select }) {
  const id = `model-${crypto.getRandomValues(new Uint32Array(1))[0]}`;
  const title = make("button", { type: "button", class: "link", "aria-controls": id }, name);
  const state = make("span", { class: "badge" });
  const task = make("span", { class: "hint" });
  const tryIt = make("a", { href: `#try?${new URLSearchParams({ model: name })}` }, strings.tryIt);
  const load = make("button", { type: "button", class: "plain" });
  const unload = make("button", { type: "button", class: "plain" }, strings.unload);
  const reasons = make("div");
  const body = make("div", { id, class: "model-details" });
  const figures = Object.fromEntries(
    ["version", "memory", "latency", "requests", "used"].map((key) => [key, make("td", { class: `col-${key}` })]),
  );
  const row = make(
    "tr",
    {},
    make("th", { scope: "row", class: "col-model" }, make("h2", {}, title)),
    make("td", { class: "col-state" }, state),
    make("td", { class: "col-task" }, task),
    ...Object.values(figures),
    make("td", { class: "col-actions" }, make("div", { class: "actions" }, tryIt, load, unload)),
  );
  const wide = (...content) => make("tr", {}, make("td", { colspan: row.cells.length }, ...content));
  const [reasonRow, detailRow] = [wide(reasons), wide(body)];
  const element = make("tbody", { "aria-label": name }, row, reasonRow, detailRow);
  let previous = "";
  title.addEventListener("click", () => select(name));
  load.addEventListener("click", () => change(name, "load"));
  unload.addEventListener("click", () => confirmUnload(name, row.lastChild).then((yes) => yes && change(name, "unload")));
  return {
    element,
    focus: () => (unload.hidden ? (load.hidden ? title : load) : unload).focus(),
    setBusy(waiting) {
      for (const control of [load, unload]) control.disabled = waiting;
    },
    open(opened) {
      title.setAttribute("aria-expanded", opened);
      detailRow.hidden = !opened;
    },
    show(model, admin) {
      const { usage, memory, ...described } = model;
      setText(figures.memory, smallBytes(memory));
      setText(figures.latency, milliseconds(usage.latency));
      setText(figures.requests, count(usage.requests));
      setText(figures.used, usage.last_used === null ? strings.unused : strings.used(usage.last_used));
      const current = JSON.stringify([described, admin]);
      this.setBusy(false);
      // Leave an unchanged entry alone, so that it keeps focus and selection.
      if (current === previous) return;
      previous = current;
      const ready = model.state === "READY";
      setText(state, strings.states[model.state]);
      state.dataset.state = model.state;
      setText(task, model.about === null ? "" : strings.task(model.about.task_type));
      setText(figures.version, model.about?.version ?? model.versions[0].version);
      tryIt.hidden = !ready;
      load.hidden = !admin || model.state === "LOADING";
      unload.hidden = !admin || !ready;
      setText(load, ready ? strings.reload : strings.load);
      for (const button of [load, unload]) button.setAttribute("aria-label", `${button.textContent} ${name}`);
      tryIt.setAttribute("aria-label", `${strings.tryIt} ${name}`);
      reasonRow.hidden = model.versions.every((version) => !version.reason);
      const failed = model.versions.filter((version) => version.reason);
      reasons.replaceChildren(
        ...failed.map(({ version, reason, wanted }) =>
          make("p", { class: wanted ? "reason" : "reason hint" }, strings.reason(version, reason)),
        ),
      );
      body.replaceChildren(...modelDetails(model, tools.root));
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
