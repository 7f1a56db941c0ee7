// The frame of a view that works with models: it waits for the catalogue.

import { waitForModels } from "./catalogue.js";
import { choice, make, notice } from "./dom.js";

// Return the `open` of a view. `select(catalogue)` returns its models; `none` is shown if there are none.
// `fetchModels(root)` returns a catalogue with more than that of the server.
// `create(parts)` returns { change(parameters), close() }.
export function modelView({ title, none, select, create, fetchModels }) {
  return (main, tools) => {
    const message = notice();
    const status = make("p.hint", { role: "status" });
    const content = make("div.content");
    main.append(make("div.heading", make("h1", title), status), message.element, content);
    let [closed, view, latest] = [false, null, new URLSearchParams()];
    waitForModels(tools.root, (catalogue) => !closed && !select(catalogue).length, fetchModels).then(
      (catalogue) => {
        if (closed) return;
        const models = select(catalogue);
        if (!models.length) {
          content.append(make("p.panel", none));
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
  };
}

// A select with models: `select.current()` returns the chosen one, `select.find(name)` one of them or undefined.
export function modelChoice(models, onchange) {
  const select = choice(
    models.map(({ name }) => [name, name]),
    onchange,
  );
  select.find = (name) => models.find((model) => model.name === name);
  select.current = () => select.find(select.value);
  return select;
}
