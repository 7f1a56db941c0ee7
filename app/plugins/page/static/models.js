// The Models view: every model with its state, inputs, outputs and settings; loading and unloading.

import { fetchCatalogue, taskName } from "./catalogue.js";
import { poll, requestJson } from "./connection.js";
import { button, make, notice, setText, tableHead } from "./dom.js";
import { bytes, count, counted, milliseconds } from "./format.js";
import { STATES, modelDetails } from "./model_details.js";

const POLL_MS = 4000;

const COLUMNS = {
  model: "Model",
  state: "State",
  task: "Task",
  version: "Version",
  memory: "Memory",
  requests: "Requests",
  errors: "Errors",
  latency: "Mean latency",
  actions: "Actions",
};

export function open(main, tools) {
  const status = make("p.hint", { role: "status" });
  const message = notice();
  const table = make("table.text-table.models-table", tableHead(COLUMNS));
  const entries = new Map();
  const metrics = make("a", { href: new URL("metrics", tools.root) }, "Metrics");
  const dashboard = make("a", { href: new URL("guide/configuration.html#metrics", tools.root) }, "Grafana dashboard");
  const heading = make("div.heading", make("h1", "Models"), status, make("div.actions", metrics, dashboard));
  main.append(heading, message.element, make("section.panel", { "aria-label": "Models" }, table));
  let selected = "";
  let busyModel = "";

  const polling = poll(async () => {
    try {
      // A server without the plugin of Triton's extensions has no such list.
      const listed = post("index").catch(() => null);
      const [catalogue, versions] = await Promise.all([fetchCatalogue(tools.root), listed]);
      const models = mergeModels(catalogue, versions ?? catalogue.models);
      if (!polling.closed) show(models, catalogue.admin && versions !== null, catalogue.memory);
    } catch (error) {
      if (!polling.closed) message.showError(error);
    }
  }, POLL_MS);

  function post(path) {
    return requestJson(new URL(`v2/repository/${path}`, tools.root), { method: "POST" });
  }

  async function change(name, action) {
    busyModel = name;
    message.clear();
    setText(status, `${action === "load" ? "Loading" : "Unloading"} ${name} …`);
    entries.get(name).setBusy(true);
    try {
      await post(`models/${encodeURIComponent(name)}/${action}`);
    } catch (error) {
      message.showError(`${name} could not be ${action}ed: ${error.message}`);
    }
    busyModel = "";
    await polling.load();
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
    table.classList.toggle("no-memory", models.every((model) => model.memory === null));
    const ready = models.filter((model) => model.state === "READY").length;
    const summary = `${counted(models.length, "model")}, ${count(ready)} ready. The server uses ${bytes(memory)}.`;
    if (!busyModel) setText(status, models.length ? summary : "This server has no models");
    updateSelection();
  }

  function select(name) {
    tools.go("models", name === selected ? {} : { model: name });
  }

  function updateSelection() {
    for (const [name, entry] of entries) entry.open(name === selected);
  }

  return {
    change(parameters) {
      selected = parameters.get("model") ?? "";
      updateSelection();
    },
    close: polling.close,
  };
}

const NO_USAGE = { requests: 0, errors: 0, latency: 0 };
// The reasons of models that should not be loaded.
const NOT_LOADED = ["not loaded", "unloaded"];
const STATES_BEST_FIRST = ["READY", "LOADING", "UNAVAILABLE"];

// One entry per model: the repository also lists models that were never loaded, the catalogue describes loaded ones.
function mergeModels({ models: catalogue, usage }, versions) {
  const models = new Map();
  for (const version of versions) {
    if (!models.has(version.name))
      models.set(version.name, { name: version.name, versions: [], memories: [], about: null });
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
  // A tensor view is ready, too, but it is no model of its own.
  const own = [...models.values()].filter(({ state, about }) => state !== "READY" || about !== null);
  return own.sort((left, right) => left.name.localeCompare(right.name));
}

function createEntry(name, { tools, change, select }) {
  const id = `model-${crypto.getRandomValues(new Uint32Array(1))[0]}`;
  const title = make("button.link", { type: "button", "aria-controls": id }, name);
  const state = make("span.badge");
  const task = make("span.hint");
  const tryIt = make("a", { href: `#try?${new URLSearchParams({ model: name })}` }, "Try");
  const load = make("button.plain", { type: "button" });
  const unload = make("button.plain", { type: "button" }, "Unload");
  const reasons = make("div");
  const body = make("div.model-details", { id });
  const figures = Object.fromEntries(
    ["version", "memory", "requests", "errors", "latency"].map((key) => [key, make("td", { class: `col-${key}` })]),
  );
  const row = make(
    "tr",
    make("th.col-model", { scope: "row" }, make("h2", title)),
    make("td.col-state", state),
    make("td.col-task", task),
    ...Object.values(figures),
    make("td.col-actions", make("div.actions", tryIt, load, unload)),
  );
  const wide = (...content) => make("tr", make("td", { colspan: row.cells.length }, ...content));
  const [reasonRow, detailRow] = [wide(reasons), wide(body)];
  const element = make("tbody", { "aria-label": name }, row, reasonRow, detailRow);
  let previous = "";
  title.addEventListener("click", () => select(name));
  load.addEventListener("click", () => change(name, "load"));
  unload.addEventListener("click", () =>
    confirmUnload(name, row.lastChild).then((yes) => yes && change(name, "unload")),
  );
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
      setText(figures.memory, memory === null ? "" : bytes(memory));
      setText(figures.requests, count(usage.requests));
      setText(figures.errors, count(usage.errors));
      setText(figures.latency, milliseconds(usage.latency || null));
      const current = JSON.stringify([described, admin]);
      this.setBusy(false);
      // Leave an unchanged entry alone, so that it keeps focus and selection.
      if (current === previous) return;
      previous = current;
      const ready = model.state === "READY";
      setText(state, STATES[model.state]);
      state.dataset.state = model.state;
      setText(task, model.about === null ? "" : taskName(model.about.task_type));
      setText(figures.version, model.about?.version ?? model.versions[0].version);
      tryIt.hidden = !ready;
      load.hidden = !admin || model.state === "LOADING";
      unload.hidden = !admin || !ready;
      setText(load, ready ? "Reload" : "Load");
      for (const button of [load, unload]) button.setAttribute("aria-label", `${button.textContent} ${name}`);
      tryIt.setAttribute("aria-label", `Try ${name}`);
      reasonRow.hidden = model.versions.every((version) => !version.reason);
      const failed = model.versions.filter((version) => version.reason);
      reasons.replaceChildren(
        ...failed.map(({ version, reason }) =>
          make("p", { class: NOT_LOADED.includes(reason) ? "reason hint" : "reason" }, `Version ${version}: ${reason}`),
        ),
      );
      body.replaceChildren(...modelDetails(model, tools.root));
    },
  };
}

// Resolve to true if the user confirms. Escape cancels, and the browser restores the focus.
function confirmUnload(name, element) {
  const no = make("button.plain", { value: "", autofocus: "" }, "Cancel");
  const yes = make("button.plain.danger", { value: "yes" }, "Unload");
  const title = make("h2", { id: "confirm" }, `Unload ${name}?`);
  const actions = make("form.actions", { method: "dialog" }, no, yes);
  const note = "Requests in flight are answered. New requests fail until the model is loaded again.";
  const dialog = make("dialog", { "aria-labelledby": "confirm" }, title, make("p", note), actions);
  element.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
  });
}
