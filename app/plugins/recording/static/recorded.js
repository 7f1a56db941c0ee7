// The Recorded view: what this server has recorded, and what plugins find in it.

import { make } from "./dom.js";

export function open(main, tools) {
  const sections = make("div.cards");
  main.append(make("h1", "Recorded"), sections);
  return tools.extend(sections, { main, tools });
}
