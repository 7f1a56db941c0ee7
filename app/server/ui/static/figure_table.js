// Tables of names and figures in the Metrics view.

import { make, setText } from "./dom.js";

// A table of names and figures. It keeps its rows while the names stay the same.
export function figureTable(title, noFigures) {
  const body = make("tbody");
  const none = make("p", { class: "hint" }, noFigures);
  let names = "";
  return {
    element: make(
      "div",
      {},
      make("h3", {}, title),
      make("table", { class: "figures", "aria-label": title }, body),
      none,
    ),
    show(pairs) {
      none.hidden = pairs.length > 0;
      const newNames = pairs.map(([name]) => name).join();
      if (newNames !== names) {
        names = newNames;
        body.replaceChildren(
          ...pairs.map(([name]) => make("tr", {}, make("th", { scope: "row" }, name), make("td"))),
        );
      }
      pairs.forEach(([, figure], index) => setText(body.rows[index].cells[1], figure));
    },
  };
}
