"""Tiles cover an image evenly, with as few of them as the overlap allows."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.vision.image import Image
from tasks.vision.tiles import MAX_OVERLAP, count_tiles, smallest_tile, tile_starts, tiles_of

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
