// The frame of a view that works with models: it waits for the catalogue.

import { waitForModels } from "./catalogue.js";
import { notice } from "./controls.js";
import { make } from "./dom.js";

// `select(catalogue)` returns the models of the view; `none` is shown if there are none. `create(parts)` returns {
// change(parameters), close() }.
export function modelView({ id, title, none, select, create }) {
  return {
    id,
    title,
    open(main, tools) {
      const message = notice();
      const status = make("p", { class: "hint", role: "status" });
      const content = make("div", { class: "content" });
      main.append(make("div", { class: "heading" }, make("h1", {}, title), status), message.element, content);
      let [closed, view, latest] = [false, null, new URLSearchParams()];
      waitForModels(tools.root, (catalogue) => !closed && !select(catalogue).length).then(
        (catalogue) => {
          if (closed) return;
          const models = select(catalogue);
          if (!models.length) {
            content.append(make("p", { class: "panel" }, none));
            return;
          }
          view = create({ main, content, tools, catalogue, models, message, status });
          view.change(latest);
        },
        (error) => message.showError(error),
      );
      return {
        change(parameters) {
          latest = parameters;
          view?.change(parameters);
        },
        get recover() {
          return view?.recover;
        },
        close() {
          closed = true;
          view?.close();
        },
      };
    },
  };
}
