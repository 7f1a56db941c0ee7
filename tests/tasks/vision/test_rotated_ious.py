"""Intersections of oriented boxes, compared with shapely."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tasks.vision.filtering import rotated_intersections, rotated_ious

shapely = pytest.importorskip("shapely")
affinity = pytest.importorskip("shapely.affinity")

Box = tuple[float, float, float, float, float]


def boxes(*rows: Box) -> NDArray[np.float32]:
    return np.array(rows, np.float32).reshape(-1, 5)


def polygon(row: NDArray[np.float32]) -> Any:
    cx, cy, w, h, r = row.astype(np.float64).tolist()
    upright = shapely.box(cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2)
    return affinity.rotate(upright, r, origin=(cx, cy), use_radians=True)


def by_shapely(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return (K, M) intersection over union."""
    pairs = [[(polygon(one), polygon(other)) for other in second] for one in first]
    return np.array([[one.intersection(other).area / one.union(other).area for one, other in row] for row in pairs])


sides, places = st.integers(1, 40), st.integers(0, 60)
angles = st.integers(-8, 8).map(lambda eighths: eighths * math.pi / 8) | st.floats(-4, 4)


@given(st.lists(st.tuples(places, places, sides, sides, angles), min_size=2, max_size=6))
def test_overlaps_equal_those_of_shapely(rows: list[Box]) -> None:
    found = boxes(*rows)
    np.testing.assert_allclose(rotated_ious(found, found[1:]), by_shapely(found, found[1:]), atol=1e-4)
    areas = rotated_intersections(np.broadcast_to(found[0], found[1:].shape), found[1:])
    np.testing.assert_allclose(
        areas, [polygon(found[0]).intersection(polygon(row)).area for row in found[1:]], atol=0.02
    )


def test_many_pairs_and_none_are_compared() -> None:
    many = boxes(*((50, 50, 20, 10, index / 2000) for index in range(3000)))
    areas = rotated_intersections(many, np.broadcast_to(many[0], many.shape))
    assert (areas[0], len(areas)) == (pytest.approx(200), 3000)
    assert np.all(np.diff(areas) < 0.01)
    assert rotated_ious(boxes(), many).shape == (0, 3000)
    assert rotated_ious(boxes((0, 0, 0, 0, 0)), boxes((0, 0, 4, 4, 0)))[0, 0] == 0
