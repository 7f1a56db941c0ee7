"""Images are cut into few tiles, and the objects of the tiles are merged as a person would."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.plugins.tiling.fragments import Objects, is_cut, join
from app.plugins.tiling.tile_shapes import Boxes, OrientedBoxes, Outlines, Shapes
from app.plugins.tiling.tiles import MAX_OVERLAP, Tile, count_tiles, smallest_tile, tile_starts, tiles_of
from tasks.vision.contours import contours_of_mask, mask_of_contours
from tasks.vision.filtering import ious
from tasks.vision.image import Image

WIDTH, HEIGHT = 900, 500
Floats = NDArray[np.float32]


def objects(shapes: Shapes, tiles: Sequence[int], cut: Sequence[bool], scores: Sequence[float] = ()) -> Objects:
    count = len(tiles)
    return Objects(
        shapes=shapes,
        scores=np.array(scores or np.linspace(0.9, 0.5, count), np.float32),
        class_ids=np.zeros(count, np.intp),
        tiles=np.array(tiles, np.intp),
        cut=np.array(cut, np.bool_),
    )


def groups(found: Objects, iou_threshold: float = 0.45) -> list[list[int]]:
    return [group.tolist() for group in join(found, iou_threshold)]


def see(truth: Floats, order: Sequence[int] | None = None) -> tuple[Objects, Boxes]:
    """Return what an ideal detector finds in each tile and in the whole image: the part of each box in the tile."""
    tiles = [*tiles_of(WIDTH, HEIGHT, (300, 300), 0.25), Tile(0, 0, WIDTH, HEIGHT)]
    boxes: list[Floats] = []
    owners: list[int] = []
    cut: list[NDArray[np.bool_]] = []
    for number in order or range(len(tiles)):
        tile = tiles[number]
        part = np.concatenate(
            [np.maximum(truth[:, :2], (tile.left, tile.top)), np.minimum(truth[:, 2:], (tile.right, tile.bottom))], 1
        ).astype(np.float32)
        part = part[((part[:, 2:] - part[:, :2]) > 4).all(axis=1)]
        boxes.append(part)
        owners += [number] * len(part)
        cut.append(is_cut(part, tile, WIDTH, HEIGHT, (1, 1)))
    shapes = Boxes(np.concatenate(boxes))
    return objects(shapes, owners, np.concatenate(cut).tolist()), shapes


def disjoint(seed: int, count: int) -> Floats:
    random = np.random.default_rng(seed)
    kept: list[Floats] = []
    for _ in range(count):
        corner, size = random.uniform(0, (WIDTH, HEIGHT)), random.uniform(8, 400, 2)
        box = np.array([*corner, *np.minimum(corner + size, (WIDTH, HEIGHT))], np.float32)
        if (box[2:] - box[:2] > 8).all() and not (kept and (ious(box[np.newaxis], np.array(kept)) > 0).any()):
            kept.append(box)
    return np.array(kept, np.float32).reshape(-1, 4)


@given(st.integers(0, 2**32 - 1), st.integers(0, 40))
def test_an_ideal_detector_finds_every_object_once_in_any_order_of_tiles(seed: int, count: int) -> None:
    truth = disjoint(seed, count)
    order = list(range(len(tiles_of(WIDTH, HEIGHT, (300, 300), 0.25)) + 1))
    np.random.default_rng(seed).shuffle(order)
    for numbers in (None, order):
        found, shapes = see(truth, numbers)
        unions = np.array([shapes.union(group) for group in join(found, 0.45)]).reshape(-1, 4)
        assert sorted(unions.round().tolist()) == sorted(truth.round().tolist())


def test_neighbours_and_nested_objects_stay_apart() -> None:
    boxes = [[100, 100, 200, 200], [160, 100, 260, 200], [120, 120, 150, 150]]
    found = objects(Boxes(np.array(boxes, np.float32)), [0, 0, 1], [False] * 3)
    assert groups(found) == [[0], [1], [2]]


def test_a_complete_object_absorbs_the_fragments_that_it_covers_and_no_others() -> None:
    boxes = [[0, 0, 400, 100], [0, 0, 300, 100], [180, 0, 400, 100], [390, 0, 500, 100]]
    found = objects(Boxes(np.array(boxes, np.float32)), [9, 0, 1, 2], [False, True, True, True], [0.5, 0.9, 0.9, 0.9])
    assert groups(found) == [[0], [3]]


def test_fragments_of_one_tile_stay_apart_and_those_of_a_chain_are_joined() -> None:
    row = [[0, 0, 100, 50], [50, 0, 150, 50], [100, 0, 200, 50]]
    assert groups(objects(Boxes(np.array(row, np.float32)), [0, 1, 2], [True] * 3)) == [[0, 1, 2]]
    assert groups(objects(Boxes(np.array(row, np.float32)), [0, 0, 0], [True] * 3)) == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("sliver", "cut", "is_dropped"),
    [
        ([203, 20, 210, 33], True, True),
        ([195, 45, 202, 58], True, True),
        ([220, 20, 227, 33], True, False),
        ([203, 20, 210, 33], False, False),
        ([203, 0, 243, 40], True, False),
    ],
    ids=["beside", "at the corner", "further away", "complete", "not small"],
)
def test_a_small_fragment_beside_a_joined_object_is_dropped(sliver: list[float], cut: bool, is_dropped: bool) -> None:
    row = [[0, 0, 130, 50], [50, 0, 200, 50], sliver]
    found = groups(objects(Boxes(np.array(row, np.float32)), [0, 1, 2], [True, True, cut]))
    assert sorted(found) == [[0, 1], *([] if is_dropped else [[2]])]


def test_an_object_at_the_border_of_the_image_is_complete() -> None:
    boxes = np.array([[0, 0, 50, 50], [250, 0, 299, 50], [250, 10, 290, 50]], np.float32)
    assert is_cut(boxes, Tile(0, 0, 300, 300), WIDTH, HEIGHT, (1, 1)).tolist() == [False, True, False]
    # A tile that is scaled down to the model's input has coarser boxes.
    assert is_cut(boxes, Tile(0, 0, 300, 300), WIDTH, HEIGHT, (12, 12)).tolist() == [False, True, True]


@pytest.mark.parametrize("turned", [0, math.pi / 2])
def test_parts_of_an_oriented_object_are_joined_in_its_direction(turned: float) -> None:
    angle = 0.3
    along = np.array([math.cos(angle), math.sin(angle)])
    second = [*(100 + along * 50), 120, 40, angle] if not turned else [*(100 + along * 50), 40, 120, angle + turned]
    boxes = np.array([[100, 100, 120, 40, angle], second], np.float32)
    shapes = OrientedBoxes(boxes)
    (group,) = join(objects(shapes, [0, 1], [True, True]), 0.45)
    assert shapes.union(group) == pytest.approx([*(100 + along * 25), 170, 40, angle], abs=0.5)
    crossing = OrientedBoxes(np.array([[100, 100, 120, 40, 0], [100, 100, 120, 40, math.pi / 4]], np.float32))
    assert groups(objects(crossing, [0, 1], [True, True])) == [[0], [1]]


def ring(left: int, top: int) -> NDArray[np.uint8]:
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[top : top + 200, left : left + 200] = 1
    mask[top + 80 : top + 120, left + 80 : left + 120] = 0
    return mask


def test_joined_contours_keep_the_hole_and_lose_the_border_between_tiles() -> None:
    whole = ring(100, 100)
    parts = [whole.copy(), whole.copy()]
    parts[0][:, 240:] = 0
    parts[1][:, :160] = 0
    shapes = Outlines([contours_of_mask(part) for part in parts])
    (group,) = join(objects(shapes, [0, 1], [True, True]), 0.45)
    assert np.array_equal(mask_of_contours(shapes.union(group), WIDTH, HEIGHT), whole)


def test_a_fragment_in_the_hole_of_a_complete_object_stays() -> None:
    inside = np.zeros((HEIGHT, WIDTH), np.uint8)
    inside[190:210, 190:210] = 1
    touching = np.zeros((HEIGHT, WIDTH), np.uint8)
    touching[100:150, 100:300] = 1
    shapes = Outlines([contours_of_mask(mask) for mask in (ring(100, 100), inside, touching)])
    assert groups(objects(shapes, [0, 1, 1], [False, True, True])) == [[0], [1]]


sides = st.integers(1, 5000)
tile_sides = st.integers(1, 2000)
overlaps = st.floats(0, MAX_OVERLAP)


@given(sides, tile_sides, overlaps)
def test_tiles_are_equal_overlap_enough_and_are_as_few_as_possible(side: int, size: int, overlap: float) -> None:
    starts = tile_starts(side, size, overlap)
    shared = min(round(size * overlap), size - 1)
    assert starts[0] == 0
    assert starts[-1] == max(side - size, 0)
    assert all(0 < next_start - start <= size - shared for start, next_start in itertools.pairwise(starts))
    # With one tile fewer, some pixel would be left out, or some overlap would be smaller.
    assert len(starts) == 1 or (len(starts) - 1) * (size - shared) + shared < side
    # A mirrored image has the mirrored tiles, up to the rounding of half a pixel.
    mirrored = [max(side - size, 0) - start for start in reversed(starts)]
    assert all(abs(a - b) <= 1 for a, b in zip(starts, mirrored, strict=True))


def test_tiles_are_views_of_the_image_row_by_row() -> None:
    image = Image(np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3))
    tiles = tiles_of(7, 5, (5, 4), 0.25)
    assert [(tile.left, tile.top, tile.right, tile.bottom) for tile in tiles] == [(0, 0, 4, 5), (3, 0, 7, 5)]
    cut = tiles[1].cut(image)
    assert (cut.width, cut.height) == (4, 5)
    assert np.shares_memory(cut.pixels, image.pixels)


@settings(max_examples=40)
@given(st.lists(st.tuples(sides, sides), min_size=1, max_size=4), overlaps, st.integers(1, 300))
def test_the_smallest_tile_fits_the_limit_and_no_smaller_one_does(
    sizes: list[tuple[int, int]], overlap: float, max_tiles: int
) -> None:
    def count(size: int) -> int:
        counts = [count_tiles(width, size, overlap) * count_tiles(height, size, overlap) for width, height in sizes]
        return sum(number for number in counts if number > 1)

    size = smallest_tile(sizes, overlap, max_tiles)
    assert count(size) <= max_tiles
    assert size == 1 or count(size - 1) > max_tiles
