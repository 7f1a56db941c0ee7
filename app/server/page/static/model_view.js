// The frame of a view that works with models: it waits for the catalogue.

import { fetchCatalogue } from "./catalogue.js";
import { notice } from "./controls.js";
import { make } from "./dom.js";

// `select(catalogue)` returns the models of the view; `none` is shown if there are none. `create(parts)` returns {
// change(parameters), close() }.
export function deskView({ id, title, none, able, desk }) {
  return {
    id,
    title,
    open(main, tools) {
      const said = notice();
      const told = make("p", { class: "hint", role: "status" });
      const work = make("div", { class: "work" });
      main.append(make("div", { class: "heading" }, make("h1", {}, title), told), said.element, work);
      let [closed, opened, waiting] = [false, null, new URLSearchParams()];
      fetchCatalogue(tools.root).then(
        (catalogue) => {
          if (closed) return;
          const models = able(catalogue);
          if (!models.length) {
            work.append(make("p", { class: "panel" }, none));
            return;
          }
          opened = desk({ main, work, tools, catalogue, models, said, told });
          opened.change(waiting);
        },
        (error) => said.fail(error.message),
      );
      return {
        change(parameters) {
          waiting = parameters;
          opened?.change(parameters);
        },
        close() {
          closed = true;
          opened?.close();
        },
      };
    },
  };
}
