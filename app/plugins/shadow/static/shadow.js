// In Recorded: the latest images that a shadow version answers in another way than the version that clients get.

import { poll, requestJson } from "./connection.js";
import { button, disclosure, make, notice, setText, tableHead } from "./dom.js";
import { counted, localTime } from "./format.js";
import { showRecording } from "./recording_dialog.js";

const POLL_MS = 3000;
const COLUMNS = { time: "Time", model: "Model", champion: "Clients get", shadow: "Shadow version", open: "Image" };

export function extend(container, { main, tools }) {
  const status = make("span.hint", { role: "status" });
  const message = notice();
  const body = make("tbody");
  const table = make("table.text-table", { "aria-label": "Different answers" }, tableHead(COLUMNS), body);
  const scrollable = make("div.scrollable", { tabindex: "0", role: "group", "aria-label": "Different answers" }, table);
  const section = disclosure(make("h2", "Disagreements"), status, message.element, scrollable);
  section.hidden = true;
  container.append(section);
  let [shown, dialog] = ["", null];

  const polling = poll(async () => {
    try {
      const images = await requestJson(new URL("page/shadow.json", tools.root));
      if (polling.closed || shown === JSON.stringify(images)) return;
      shown = JSON.stringify(images);
      // A load of a model adds or removes its shadow version.
      section.hidden = images === null;
      if (images === null) return;
      setText(status, `The latest ${counted(images.length, "image")} with different answers`);
      body.replaceChildren(...images.map(createRow));
    } catch (error) {
      message.showError(error);
    }
  }, POLL_MS);

  function createRow(image) {
    const cells = [
      localTime(image.time / 1000),
      image.model,
      `${image.champion}: ${image.before}`,
      `${image.version}: ${image.after}`,
      button("Show", () => show(image.id)),
    ];
    return make("tr", ...cells.map((cell) => make("td", cell)));
  }

  async function show(id) {
    try {
      const inference = await requestJson(new URL(`inferences/${encodeURIComponent(id)}`, tools.root));
      message.clear();
      dialog = showRecording(main, tools.root, inference, { newer: null, older: null, onclose: () => (dialog = null) });
    } catch (error) {
      message.showError(error);
    }
  }

  return {
    close() {
      polling.close();
      dialog?.close();
    },
  };
}
