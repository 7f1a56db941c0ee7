// The Batch view: runs a model on a folder of images, and lists the results in a table.

import { inspect } from "./batch_dialog.js";
import { rowOf } from "./batch_row.js";
import { choices, sortOf } from "./catalogue.js";
import { button, choice, field, save, slider } from "./controls.js";
import { csvOf } from "./csv.js";
import { deskView } from "./model_view.js";
import { make, say } from "./dom.js";
import { filesIn, mayBePicture } from "./dropped_files.js";
import { infer } from "./inference.js";
import { session } from "./session.js";
import { text } from "./text.js";

const words = text.batch;
const ID = "batch";
const LOWEST = 0.05;
const AT_ONCE = 4;
const SHOWN = 100;
const TRIES = 6;
const NUMERIC = new Set(["score", "found", "time"]);

export const batch = deskView({
  id: ID,
  title: words.title,
  none: words.none,
  able: (catalogue) => choices(catalogue).filter((model) => sortOf(model.task_type) === "picture"),
  desk: deskOf,
});

function deskOf({ main, work, tools, catalogue, models: able, said, told }) {
  const model = choice(
    able.map((model) => [model.name, model.name]),
    () => begin(rows.map((row) => row.file)),
  );
  const score = slider({ label: words.score, min: LOWEST, value: 0.5, oninput: () => summarise() });
  const pick = (attributes, label) => {
    const input = make("input", { type: "file", multiple: "", hidden: "", "aria-label": label, ...attributes });
    input.addEventListener("change", () => {
      begin([...input.files]);
      input.value = "";
    });
    return [button(label, () => input.click()), input];
  };
  const stop = button(words.stop, () => asking?.abort());
  const bar = make("progress", { max: 1, value: 0, "aria-label": words.progress });
  const search = make("input", { type: "search", placeholder: words.searchHint });
  const show = choice(Object.entries(words.kinds), () => arrange());
  const counted = make("p", { class: "hint", role: "status" });
  const heads = new Map(Object.keys(words.columns).map((key) => [key, headOf(key)]));
  const body = make("tbody");
  const more = button(words.more, () => {
    limit += SHOWN;
    arrange();
  });
  const table = make(
    "table",
    { class: "words batch" },
    make(
      "thead",
      {},
      make(
        "tr",
        {},
        make("th", { scope: "col", class: "of-picture" }, make("span", { class: "unseen" }, words.picture)),
        ...[...heads.values()].map((head) => head.element),
      ),
    ),
    body,
  );
  const results = make(
    "section",
    { class: "panel", "aria-label": words.results, hidden: "" },
    make(
      "div",
      { class: "row" },
      field(words.search, search),
      field(words.show, show),
      make(
        "div",
        { class: "acts" },
        button(words.csv, () => saveCsv()),
        button(words.json, () => saveJson()),
      ),
    ),
    counted,
    make("div", { class: "scrolls" }, table),
    more,
  );
  const progress = make("div", { class: "row", hidden: "" }, bar, stop);
  const empty = make("p", { class: "hint" }, words.empty);
  work.append(
    make(
      "section",
      { class: "panel", "aria-label": words.task },
      make(
        "div",
        { class: "row" },
        field(words.model, model),
        score.element,
        make(
          "div",
          { class: "acts" },
          ...pick({ webkitdirectory: "" }, words.folder),
          ...pick({ accept: "image/*" }, words.files),
        ),
      ),
      progress,
      empty,
    ),
    results,
  );
  let [rows, order, limit, asking, timer] = [[], { key: "name", down: false }, SHOWN, null, 0];

  function headOf(key) {
    const sign = make("span", { "aria-hidden": "true" });
    const act = make("button", { type: "button", class: "link" }, words.columns[key], sign);
    const element = make("th", { scope: "col", class: `of-${key}` }, act);
    act.addEventListener("click", () => {
      order = { key, down: order.key === key ? !order.down : NUMERIC.has(key) };
      arrange();
    });
    return { element, sign };
  }

  const current = () => able.find(({ name }) => name === model.value);

  function begin(files) {
    asking?.abort();
    keep();
    const pictures = files.filter(mayBePicture);
    if (!files.length) return;
    said.clear();
    if (pictures.length < files.length) said.tell(words.skipped(files.length - pictures.length));
    if (!pictures.length) return;
    rows = pictures.map((file) => rowOf(file, (row) => inspect(main, row, current().task_type, score.value())));
    [limit, empty.hidden, results.hidden, progress.hidden] = [SHOWN, true, false, false];
    run(rows);
  }

  async function run(all) {
    const mine = (asking = new AbortController());
    const began = performance.now();
    const queue = [...all];
    say(told, words.working(all.length));
    arrange();
    await Promise.all(Array.from({ length: AT_ONCE }, () => worker(queue, mine.signal)));
    if (mine !== asking) return;
    progress.hidden = true;
    const failed = all.filter((row) => row.error).length;
    const done = all.filter((row) => row.records).length;
    say(
      told,
      mine.signal.aborted
        ? words.stopped(done, all.length)
        : words.done(done, failed, (performance.now() - began) / 1000),
    );
    summarise();
  }

  async function worker(queue, signal) {
    while (queue.length && !signal.aborted) {
      const row = queue.shift();
      try {
        await answer(row, signal);
      } catch (error) {
        if (error.name === "AbortError") return;
        row.error = error.message;
      }
      row.show(current(), score.value());
      soon();
    }
  }

  // A busy server answers 429: wait, then send the image again.
  async function answer(row, signal) {
    const chosen = current();
    const parameters = chosen.parameters.score_threshold ? { score_threshold: LOWEST } : {};
    for (let tries = 1; ; tries += 1) {
      try {
        const found = await infer({
          root: tools.root,
          catalogue,
          model: chosen,
          data: [{ name: row.name, blob: row.file }],
          parameters,
          signal,
        });
        [row.records, row.milliseconds] = [found.outputs[0], found.milliseconds];
        return;
      } catch (error) {
        if (error.status !== 429 || tries === TRIES) throw error;
        await new Promise((resolve) => setTimeout(resolve, 250 * 2 ** tries));
      }
    }
  }

  // Redraw at most every 200 ms: results arrive faster than anyone can read them.
  function soon() {
    if (timer) return;
    timer = setTimeout(() => {
      timer = 0;
      arrange();
    }, 200);
  }

  function summarise() {
    keep();
    for (const row of rows) row.show(current(), score.value());
    arrange();
  }

  function arrange() {
    const done = rows.filter((row) => row.records || row.error).length;
    [bar.max, bar.value] = [Math.max(rows.length, 1), done];
    const asked = search.value.trim().toLowerCase();
    const kinds = {
      all: () => true,
      found: (row) => row.found > 0,
      empty: (row) => row.records && row.found === 0,
      failed: (row) => row.error,
    };
    const kept = rows.filter((row) => kinds[show.value](row) && row.words().includes(asked));
    const { key, down } = order;
    const sign = down ? -1 : 1;
    kept.sort((one, other) => {
      const [left, right] = [one.key(key), other.key(key)];
      // Unknown values come last in both directions.
      if (left === null || right === null) return (left === null) - (right === null);
      return sign * (typeof left === "string" ? left.localeCompare(right, "en", { numeric: true }) : left - right);
    });
    for (const [name, head] of heads) {
      const sorted = name === key ? (down ? "descending" : "ascending") : "none";
      head.element.setAttribute("aria-sort", sorted);
      say(head.sign, { descending: " ▼", ascending: " ▲", none: "" }[sorted]);
    }
    const focused = document.activeElement;
    body.replaceChildren(...kept.slice(0, limit).map((row) => row.element));
    if (focused !== document.activeElement && body.contains(focused)) focused.focus();
    for (const row of kept.slice(0, limit)) row.paint();
    more.hidden = kept.length <= limit;
    say(counted, words.counted(kept.length, rows.length));
  }

  function keep() {
    history.replaceState(null, "", `#${ID}?${new URLSearchParams({ model: model.value, score: score.value() })}`);
  }

  function saveJson() {
    const score_threshold = score.value();
    const answers = rows.map((row) => ({
      file: row.name,
      ...(row.error
        ? { error: row.error }
        : { records: (row.records ?? []).filter((record) => record.score >= score_threshold) }),
    }));
    save(
      new Blob([JSON.stringify({ model: model.value, score_threshold, answers }, null, 1)], {
        type: "application/json",
      }),
      "batch.json",
    );
  }

  function saveCsv() {
    const lines = rows.map((row) => [
      row.name,
      row.label,
      row.score ?? "",
      row.found ?? "",
      row.milliseconds?.toFixed(1) ?? "",
      row.error ?? "",
    ]);
    save(new Blob([csvOf([words.csvColumns, ...lines])], { type: "text/csv" }), "batch.csv");
  }

  async function drop(event) {
    event.preventDefault();
    if (event.type === "drop") begin(await filesIn(event.dataTransfer));
  }

  search.addEventListener("input", arrange);
  for (const type of ["dragover", "drop"]) main.addEventListener(type, drop);
  return {
    change(parameters) {
      const name = parameters.get("model") ?? session.model;
      const known = able.find((model) => model.name === name);
      if (parameters.has("model") && !known) said.fail(words.unknown(name));
      model.value = (known ?? able.find((model) => model.task_type !== "IMAGE_CLASSIFICATION") ?? able[0]).name;
      const wanted = Number.parseFloat(parameters.get("score"));
      if (wanted >= LOWEST && wanted <= 1) score.set(wanted);
      if (rows.length) begin(rows.map((row) => row.file));
    },
    close() {
      asking?.abort();
      clearTimeout(timer);
      for (const type of ["dragover", "drop"]) main.removeEventListener(type, drop);
    },
  };
}
