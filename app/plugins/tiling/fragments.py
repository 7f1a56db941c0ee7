"""Merge the objects of overlapping tiles: decide which are the same object, and which are parts of one.

An object that ends at a border between tiles is a fragment; all others are complete. Complete objects suppress each
other by their overlap, as in one image. They also cover the fragments that lie in them. The fragments that are left
are joined where they overlap. Plain suppression keeps fragments of large objects, and merging by containment, without
this distinction, swallows small objects in crowds.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.plugins.tiling.tile_shapes import Indices, Shapes, near
from app.plugins.tiling.tiles import Tile
from tasks.vision.filtering import MAX_BOXES

_COVERED = 0.5
"""Share of a fragment that a complete object covers, or share of the smaller of two fragments that both have."""
_SLIVER = 0.05
"""Share of the area of a joined object. A smaller fragment beside it is a part of it that the model saw badly."""
_MIN_MARGIN = 2.0
"""Pixels. Boxes of cut objects end this close to the border of their tile, or closer than `_MARGIN` of their side."""
_MARGIN = 0.03
"""Detectors miss the border by about a hundredth of a side."""


class Objects(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What the tiles of an image show: N `shapes` with finite `scores`. Shapes of different classes are never the same.

    `tiles` (N,) are the tile of each object, and `cut` (N,) whether it is a fragment.
    """

    shapes: Shapes
    scores: NDArray[np.float32]
    class_ids: Indices
    tiles: Indices
    cut: NDArray[np.bool_]


def is_cut(
    bounds: NDArray[np.float32], tile: Tile, width: int, height: int, scale: tuple[float, float]
) -> NDArray[np.bool_]:
    """Return (N,) whether boxes reach a border of their tile inside the image of `width` x `height` pixels.

    `bounds` are (N, 4) xyxy in pixels of the whole image, and may extend over the border. `scale` are the image pixels
    for each pixel of the model's input, along x and y.
    """
    sides = bounds[:, 2:] - bounds[:, :2]
    margin_x, margin_y = (np.maximum(max(_MIN_MARGIN, scale[axis]), _MARGIN * sides[:, axis]) for axis in (0, 1))
    cut = np.zeros(len(bounds), np.bool_)
    if tile.left > 0:
        cut |= bounds[:, 0] <= tile.left + margin_x
    if tile.top > 0:
        cut |= bounds[:, 1] <= tile.top + margin_y
    if tile.right < width:
        cut |= bounds[:, 2] >= tile.right - margin_x
    if tile.bottom < height:
        cut |= bounds[:, 3] >= tile.bottom - margin_y
    return cut


def join(objects: Objects, iou_threshold: float) -> list[Indices]:
    """Return the indices of each merged object, the best first: one, or several fragments that are its parts."""
    kept = suppress(objects, np.flatnonzero(~objects.cut), iou_threshold)
    fragments = np.flatnonzero(objects.cut).tolist()
    groups = _groups(objects, [index for index in fragments if not _is_covered(objects, index, kept)])
    # Parts that were not joined because of their direction may still lie in a larger object that was.
    groups.sort(key=lambda group: -max(objects.shapes.area(index) for index in group.tolist()))
    merged: list[Indices] = []
    parts = kept[:0]
    for group in groups:
        if not all(_is_covered(objects, index, parts) for index in group.tolist()):
            merged.append(group)
            parts = np.concatenate([parts, group]) if len(group) > 1 else parts
    merged = [group for group in merged if not _is_sliver(objects, group, merged)]
    # Objects with equal scores keep the order of the tiles.
    merged.sort(key=lambda group: int(group[0]))
    return [kept[position : position + 1] for position in range(len(kept))] + merged


def suppress(objects: Objects, indices: Indices, iou_threshold: float) -> Indices:
    """Return the `indices` that non-maximum suppression keeps, of at most `MAX_BOXES`."""
    order = (-objects.scores[indices]).argsort(kind="stable")[:MAX_BOXES]
    return objects.shapes.suppress(indices[order], objects.scores, objects.class_ids, iou_threshold)


def _is_covered(objects: Objects, index: int, others: Indices) -> bool:
    """Return whether one of `others` covers enough of a fragment."""
    others = _near(objects, index, others)
    shapes = objects.shapes
    return len(others) > 0 and bool(shapes.intersections(index, others).max() >= _COVERED * shapes.area(index))


def _is_sliver(objects: Objects, group: Indices, merged: Sequence[Indices]) -> bool:
    """Return whether a fragment is a small remnant beside an object of its class that was joined from several."""
    if len(group) > 1:
        return False
    index = int(group[0])
    left, top, right, bottom = objects.shapes.bounds[index].tolist()
    gap = min(right - left, bottom - top)
    for other in merged:
        if len(other) == 1 or objects.class_ids[other[0]] != objects.class_ids[index]:
            continue
        bounds = objects.shapes.bounds[other]
        (first_x, first_y), (last_x, last_y) = bounds[:, :2].min(axis=0) - gap, bounds[:, 2:].max(axis=0) + gap
        is_beside = first_x < right and left < last_x and first_y < bottom and top < last_y
        if is_beside and objects.shapes.area(index) <= _SLIVER * sum(map(objects.shapes.area, other.tolist())):
            return True
    return False


def _near(objects: Objects, index: int, others: Indices) -> Indices:
    """Return the indices in `others` of objects that have the class of this object and meet its bounds."""
    return near(objects.shapes.bounds, index, others[objects.class_ids[others] == objects.class_ids[index]])


def _groups(objects: Objects, fragments: Sequence[int]) -> list[Indices]:
    """Join fragments of different tiles that share half of the smaller one, directly or through others."""
    shapes = objects.shapes
    group_of: dict[int, list[int]] = {}
    for position, index in enumerate(fragments):
        own = group_of[index] = [index]
        others = _near(objects, index, np.array(fragments[:position], np.intp))
        others = others[objects.tiles[others] != objects.tiles[index]]
        others = others[shapes.parallel(index, others)]
        smaller = np.minimum([shapes.area(other) for other in others.tolist()], shapes.area(index))
        for other in others[shapes.intersections(index, others) >= _COVERED * smaller].tolist():
            joined = group_of[other]
            if joined is not own:
                own += joined
                group_of |= dict.fromkeys(joined, own)
    unique = {id(group): sorted(group) for group in group_of.values()}.values()
    return [np.array(sorted(group, key=lambda index: -objects.scores[index]), np.intp) for group in unique]
