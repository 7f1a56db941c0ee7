// Making elements. Text only ever goes in as text: names of models are whatever somebody called a folder.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function draw(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

// Writing what is there already would still cost a layout, and be read out again.
export function say(element, words) {
  if (element.textContent !== words) element.textContent = words;
}
