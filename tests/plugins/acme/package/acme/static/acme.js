// The view Acme: the greeting of the server.

import { make } from "./dom.js";

export function open(main, tools) {
  const text = make("p", { role: "status" });
  main.append(make("h1", "Acme"), text);
  return {
    async change() {
      const response = await fetch(new URL("page/acme.json", tools.root));
      text.textContent = (await response.json()).greeting;
    },
    close() {},
  };
}
