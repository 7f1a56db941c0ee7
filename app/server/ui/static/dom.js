// Create elements. Values are always set as text, never as HTML, because model names may contain markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function makeSvg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// Skip equal text, which would cost a layout and be announced again by screen readers.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
