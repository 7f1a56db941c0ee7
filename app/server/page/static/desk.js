// The frame of a view in which models are worked with: it opens once it is known which models there are.

import { fetchCatalogue } from "./catalogue.js";
import { notice } from "./controls.js";
import { make } from "./dom.js";

// `able(catalogue)` are the models that it is for, `none` what is said where there are none. `desk(place)` makes the
// view, and gives back { change(parameters), close() }.
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
