// A part of the view Try: the tiles into which the first image is cut.

import { make, makeSvg, setText } from "./dom.js";
import { counted } from "./format.js";
import { session } from "./session.js";

const WIDTH = 240;
const DEFAULT_OVERLAP = 0.2;
const MAX_DRAWN = 2000;

export function extend(container, { model }) {
  if (model.geometry === null || !("tile" in model.parameters)) return;
  const caption = make("p.hint", { role: "status" });
  const drawing = make("div");
  const view = container.closest("main");
  const update = () => {
    const image = session.images.find(({ width }) => width > 0);
    const { tile, overlap = DEFAULT_OVERLAP } = session.parameters;
    if (!(tile > 0) || image === undefined) {
      setText(caption, "");
      drawing.replaceChildren();
      return;
    }
    const { name, width, height } = image;
    const columns = startsOf(width, tile, overlap);
    const rows = startsOf(height, tile, overlap);
    setText(caption, `${name} (${width} x ${height}) is cut into ${counted(columns.length * rows.length, "tile")}.`);
    drawing.replaceChildren(columns.length * rows.length > MAX_DRAWN ? "" : grid(image, columns, rows, tile));
  };
  // The form stores its parameters first, because its controls get the event first.
  view.addEventListener("change", update);
  container.append(caption, drawing);
  update();
}

// The first pixel of each tile along one side, as tasks/vision/tiles.py places them.
function startsOf(side, size, overlap) {
  if (side <= size) return [0];
  const shared = Math.min(Math.round(size * overlap), size - 1);
  const last = Math.ceil((side - shared) / (size - shared)) - 1;
  return Array.from({ length: last + 1 }, (_, index) => Math.round((index * (side - size)) / last));
}

function grid({ width, height }, columns, rows, size) {
  const tiles = rows.flatMap((y) =>
    columns.map((x) =>
      makeSvg("rect", {
        x,
        y,
        width: Math.min(size, width),
        height: Math.min(size, height),
        fill: "currentColor",
        "fill-opacity": 0.12,
        stroke: "currentColor",
        "stroke-width": width / WIDTH,
      }),
    ),
  );
  const attributes = { viewBox: `0 0 ${width} ${height}`, width: WIDTH, role: "img", "aria-label": "Tiles" };
  return makeSvg("svg", attributes, ...tiles);
}
