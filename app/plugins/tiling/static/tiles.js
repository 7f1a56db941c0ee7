// A part of the view Try: the tiles into which the shown image is cut.

import { make, setText } from "./dom.js";
import { counted } from "./format.js";

const DEFAULT_OVERLAP = 0.2;
// The server rejects smaller tiles.
const MIN_TILE = 16;
const MAX_DRAWN = 2000;

export function extend(container, { model, images }) {
  if (!images || model.geometry === null || !("tile" in model.parameters)) return;
  const caption = make("p.hint", { role: "status" });
  container.append(caption);
  images.onchange((image) => {
    const { tile, overlap = DEFAULT_OVERLAP } = images.ownParameters();
    if (!(tile >= MIN_TILE) || !image?.width) {
      setText(caption, "");
      images.viewer.guides([]);
      return;
    }
    const { name, width, height } = image;
    const rows = startsOf(height, tile, overlap);
    const tiles = startsOf(width, tile, overlap).flatMap((left) => rows.map((top) => [left, top]));
    setText(caption, `${name} (${width} x ${height}) is cut into ${counted(tiles.length, "tile")}.`);
    const size = [Math.min(tile, width), Math.min(tile, height)];
    images.viewer.guides(tiles.length > MAX_DRAWN ? [] : tiles.map((place) => [...place, ...size]));
  });
}

// The first pixel of each tile along one side, as tasks/vision/tiles.py places them.
function startsOf(side, size, overlap) {
  if (side <= size) return [0];
  const shared = Math.min(Math.round(size * overlap), size - 1);
  const last = Math.ceil((side - shared) / (size - shared)) - 1;
  return Array.from({ length: last + 1 }, (_, index) => Math.round((index * (side - size)) / last));
}
