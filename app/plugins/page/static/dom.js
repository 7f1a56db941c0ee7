// Create elements, controls and messages. Values are always set as text, never as HTML: model names may contain markup.


function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// An element: make("p.hint", { role: "status" }, ...children), with classes behind its tag. Attributes are optional.
export function make(selector, ...parts) {
  const [tag, ...classes] = selector.split(".");
  const attributes = parts[0]?.constructor === Object ? parts.shift() : {};
  const element = fill(document.createElement(tag), attributes, parts);
  if (classes.length) element.classList.add(...classes);
  return element;
}

// A table head with a heading for each [key, label] of `columns`, an object or a list.
export function tableHead(columns) {
  const heading = ([key, label]) => make("th", { scope: "col", class: `col-${key}` }, label);
  return make("thead", make("tr", ...Object.entries(columns).map(heading)));
}

// Skip equal text, which would cost a layout and be announced again by screen readers.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

let controlCount = 0;

export function button(label, onclick, kind = "plain") {
  const element = make("button", { type: "button", class: kind }, label);
  element.addEventListener("click", onclick);
  return element;
}

// Call `show` with the seconds since now, every second. Return a function that ends it.
export function stopwatch(show) {
  let seconds = 0;
  const timer = setInterval(() => show(`${(seconds += 1)} s`), 1000);
  return () => clearInterval(timer);
}

// A control with its label above it.
export function field(label, control, hint = "") {
  control.id ||= `control-${(controlCount += 1)}`;
  const children = [make("label", { for: control.id }, label), control];
  if (hint) {
    const note = make("p.hint", { id: `${control.id}-hint` }, hint);
    control.setAttribute("aria-describedby", note.id);
    children.push(note);
  }
  return make("div.field", ...children);
}

// A panel that opens below its title and what it says in one line.
export function disclosure(title, status, ...content) {
  return make("details.panel", make("summary", title, " ", status), ...content);
}

// A select with options [value, label]. `select.fill(options, value)` replaces the options.
export function choice(options, onchange) {
  const element = make("select");
  element.fill = (all, value) => {
    element.replaceChildren(...all.map(([option, label]) => make("option", { value: option }, label)));
    if (value !== undefined) element.value = value;
  };
  element.fill(options);
  element.addEventListener("change", () => onchange(element.value));
  return element;
}

// A slider that shows its value: { element, value(), set(value) }. `onchange` is called when it is released.
export function slider({
  label,
  min = 0,
  max = 1,
  step = 0.01,
  value,
  oninput,
  onchange = () => {},
  format = (number) => number.toFixed(2),
}) {
  const input = make("input", { type: "range", min, max, step });
  const output = make("output", format(value));
  const element = field(label, input);
  element.classList.add("slider");
  element.firstChild.after(output);
  const set = (next) => {
    input.value = next;
    setText(output, format(Number(input.value)));
  };
  input.addEventListener("input", () => {
    setText(output, format(Number(input.value)));
    oninput(Number(input.value));
  });
  input.addEventListener("change", () => onchange(Number(input.value)));
  set(value);
  return { element, set, value: () => Number(input.value) };
}

// A group of buttons with one pressed: { element, choose(id), offer(ids) }. Options are [id, label].
export function switcher(label, options, onchoose) {
  const buttons = new Map(options.map(([id, name]) => [id, button(name, () => onchoose(id), "")]));
  return {
    element: make("div.button-group", { role: "group", "aria-label": label }, ...buttons.values()),
    choose(pressed) {
      for (const [id, element] of buttons) element.setAttribute("aria-pressed", id === pressed);
    },
    offer(ids) {
      for (const [id, element] of buttons) element.hidden = !ids.includes(id);
    },
  };
}

// A message or an error: { element, showError(error), show(sentence), clear() }. An error is a sentence, or an Error
// whose `details` are what the server answered.
export function notice() {
  const element = make("div.message", { role: "alert", hidden: "" });
  let shown = "";
  function show(kind, sentence, wire = "") {
    if (shown === kind + sentence + wire) return;
    shown = kind + sentence + wire;
    element.hidden = !sentence;
    element.dataset.kind = kind;
    element.replaceChildren(make("p", sentence));
    if (wire) element.append(make("details", make("summary", "Details"), make("pre", { tabindex: "0" }, wire)));
  }
  return {
    element,
    showError(error) {
      // The user stopped it, or the banner reports it.
      if (error.name === "AbortError" || error.name === "ConnectionLost") return;
      show("error", error.message ?? error, error.details);
    },
    show: (sentence) => show("info", sentence),
    clear: () => show("info", ""),
  };
}

// A button that opens the files of the system, with its input: the elements of a row. The input is emptied each time,
// because selecting the same file again would trigger no event.
export function fileButton(label, onfiles, attributes = { accept: "image/*", multiple: "" }) {
  const input = make("input", { type: "file", hidden: "", "aria-label": label, ...attributes });
  input.addEventListener("change", () => {
    onfiles([...input.files]);
    input.value = "";
  });
  return [button(label, () => input.click()), input];
}

// Download a blob under a name.
export function save(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
