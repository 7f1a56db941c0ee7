// The page frame: name, navigation, and routing to views.
//
// A view is a module with its id as name, which loads on first use. Its function open(element, tools) returns
// { change(parameters), close() }. With leave(), its work goes on while another view is shown, and change() shows it
// again. Its address is #id?parameters. A section is a module with the function
// extend(element, context), which adds to a view and may return the same; so do the parts of other plugins.

import { checkConnection, watchConnection } from "./connection.js";
import { button, make, setText } from "./dom.js";

const LOST = "The server cannot be reached. This page tries again until it answers.";
const NOT_LOADED = "This view could not be loaded. Check that the server is running, then try again.";
// The server writes its views into the page (app/plugins/page/page_files.py): those of its plugins, in order.
const { views, parts } = document.documentElement.dataset;
const ENABLED = JSON.parse(views);
const ENABLED_VIEWS = ENABLED.filter(({ within }) => !within);
const SECTIONS = ENABLED.filter(({ within }) => within);
// [the id of a view, the file that adds to it]
const PARTS = [...SECTIONS.map(({ within, id }) => [within, `${id}.js`]), ...JSON.parse(parts)];

const main = make("main", { id: "view", tabindex: "-1" });
const banner = make("div.banner", { role: "alert", hidden: "" }, make("p", LOST));
banner.append(button("Retry", checkConnection));
// On a phone the views are behind a button with the name of the current one.
const menu = button("", () => openMenu(list.dataset.open !== "true"), "menu");
const links = new Map(ENABLED_VIEWS.map((view) => [view.id, make("a", { href: `#${view.id}` }, view.title)]));
const list = make("div", { id: "views" }, ...links.values());
const skip = make("a.skip", { href: "#view" }, "Skip to the content");

document.body.replaceChildren(
  skip,
  make(
    "header",
    make(
      "a.brand",
      { href: `#${ENABLED_VIEWS[0].id}`, "aria-label": "Charioteer" },
      make("span.mark"),
      make("span.brand-name", "Charioteer"),
    ),
    make("nav", { "aria-label": "Views" }, menu, list),
    make("a", { href: new URL("../guide/index.html", import.meta.url) }, "Docs"),
  ),
  banner,
  main,
);

function openMenu(open) {
  menu.setAttribute("aria-expanded", open);
  list.dataset.open = open;
}

menu.setAttribute("aria-controls", list.id);
list.addEventListener("click", () => openMenu(false));
// The fragment is the address of the view, so the link must move the focus itself.
skip.addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

const tools = {
  // Whether the server stores requests, so that the page must send none of its own.
  observed: ENABLED.some(({ observes }) => observes),
  // The root of the server; a proxy may put it under any path.
  root: new URL("../", import.meta.url),
  // Keep the state of the view in its address, without a history entry.
  save(parameters) {
    const { id } = current;
    clearTimeout(saving);
    // Browsers limit how often an address may change, and a slider changes it often.
    saving = setTimeout(() => {
      // The user may have chosen another address, whose event comes later than this timer.
      if (location.hash !== address) return;
      history.replaceState(null, "", `#${id}?${new URLSearchParams(parameters)}`);
      address = location.hash;
    }, SAVE_MS);
  },
  // Let sections and other plugins add elements to a container of the view. Return { change(parameters), close() }.
  extend(container, context) {
    const added = [];
    let [closed, latest] = [false, parameters];
    const add = async (file) => {
      const { extend } = await import(`./${file}`);
      const part = closed ? null : await extend(container, context);
      if (!part) return;
      added.push(part);
      if (closed) part.close?.();
      else part.change?.(latest);
    };
    const addAll = async (view) => {
      for (const [, file] of PARTS.filter(([id]) => id === view)) {
        // The view works without the part.
        await add(file).catch((error) => console.error(`${file} cannot extend the view ${view}`, error));
      }
    };
    addAll(current.id);
    return {
      change(next) {
        latest = next;
        for (const part of added) part.change?.(next);
      },
      close() {
        closed = true;
        for (const part of added) part.close?.();
      },
    };
  },
  go(view, parameters) {
    location.hash = `${view}?${new URLSearchParams(parameters)}`;
  },
};

const SAVE_MS = 150;
// The views that were left: [what open() returned, their elements].
const kept = new Map();
let saving = 0;
let current = null;
let opened = null;
let parameters = null;
// The address that is shown.
let address = "";

async function route() {
  clearTimeout(saving);
  const left = address;
  address = location.hash;
  const [id, query = ""] = location.hash.slice(1).split("?", 2);
  const findView = (name) => ENABLED_VIEWS.find((candidate) => candidate.id === name);
  const section = SECTIONS.find((candidate) => candidate.id === id);
  const view = findView(section?.within ?? id) ?? ENABLED_VIEWS[0];
  parameters = new URLSearchParams(query);
  if (view === current) {
    opened?.change(parameters);
    return;
  }
  if (opened?.leave) {
    opened.leave();
    kept.set(current, [opened, [...main.childNodes]]);
    links.get(current.id).href = left;
  } else opened?.close();
  const [again = null, elements = []] = kept.get(view) ?? [];
  kept.delete(view);
  [current, opened] = [view, again];
  for (const [viewId, link] of links) {
    if (viewId === view.id) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  setText(menu, view.title);
  openMenu(false);
  document.title = `${view.title} · Charioteer`;
  main.replaceChildren(...elements);
  main.dataset.view = view.id;
  if (again !== null) {
    again.change(parameters);
    return;
  }
  const module = await import(`./${view.id}.js`).catch(() => null);
  // The user may have opened another view meanwhile.
  if (view !== current) return;
  if (module === null) {
    main.append(make("p.message", { role: "alert" }, NOT_LOADED));
    current = null;
    checkConnection();
    return;
  }
  // A view that was left may still finish something, but must not change the address of the next one.
  let own = null;
  const save = (latest) => own !== null && own === opened && tools.save(latest);
  own = opened = module.open(main, { ...tools, save });
  opened.change(parameters);
}

// When the server is back, open the view again.
watchConnection((lost) => {
  banner.hidden = !lost;
  if (lost) return;
  for (const view of [...kept.values()].map(([left]) => left)) view.close();
  kept.clear();
  opened?.close();
  [current, opened] = [null, null];
  route();
});

// A file dropped beside its target would replace the page.
for (const type of ["dragover", "drop"]) {
  window.addEventListener(type, (event) => event.dataTransfer?.types.includes("Files") && event.preventDefault());
}
window.addEventListener("hashchange", route);
route();
