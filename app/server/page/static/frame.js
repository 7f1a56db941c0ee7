// The frame around every view: name, navigation, state of the connection.
//
// A view is { id, title, open(element, tools) } where open() gives back { change(parameters), close() }.
// Its address is #id?parameters. To add one, write its module and name it in VIEWS.

import { make, say } from "./dom.js";
import { metrics } from "./metrics.js";
import { text } from "./text.js";

const VIEWS = [metrics];

const main = make("main", { id: "view", tabindex: "-1" });
const state = make("p", { class: "state", role: "status" });
const about = make("p", { class: "about" });
const links = new Map(VIEWS.map((view) => [view.id, make("a", { href: `#${view.id}` }, view.title)]));
const skip = make("a", { class: "skip", href: "#view" }, text.skip);

document.body.replaceChildren(
  skip,
  make(
    "header",
    {},
    make("a", { class: "brand", href: `#${VIEWS[0].id}` }, make("span", { class: "mark" }), text.product),
    make("nav", { "aria-label": text.views }, ...links.values()),
    about,
    state,
  ),
  main,
);

// The fragment is the view's address, so that the link cannot use it to jump.
skip.addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

const tools = {
  // The server's root, which a proxy may have put anywhere.
  root: new URL("../", import.meta.url),
  state(name) {
    say(state, text.states[name]);
    state.dataset.state = name;
  },
  about(words) {
    say(about, words);
  },
  go(view, parameters) {
    location.hash = `${view}?${new URLSearchParams(parameters)}`;
  },
};

let shown = null;
let opened = null;

function route() {
  const [id, query = ""] = location.hash.slice(1).split("?", 2);
  const view = VIEWS.find((each) => each.id === id) ?? VIEWS[0];
  const parameters = new URLSearchParams(query);
  if (view === shown) {
    opened.change(parameters);
    return;
  }
  if (opened !== null) opened.close();
  shown = view;
  for (const [each, link] of links) {
    if (each === view.id) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${view.title} · ${text.product}`;
  main.replaceChildren();
  opened = view.open(main, tools);
  opened.change(parameters);
}

window.addEventListener("hashchange", route);
route();
