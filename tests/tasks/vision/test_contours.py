"""Conversion of masks to contours and back without losing a pixel."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tasks.vision.contours import Contour, contours_of_mask, mask_of_contours, simplify

Mask = NDArray[np.uint8]


def mask_from(*rows: str) -> Mask:
    return np.array([[character == "#" for character in row] for row in rows], np.uint8)


def round_trip(mask: Mask) -> Mask:
    height, width = mask.shape
    return mask_of_contours(contours_of_mask(mask), width, height)


SHAPES = {
    "empty": (mask_from("...", "..."), 0),
    "one pixel": (mask_from("...", ".#.", "..."), 1),
    "a line": (mask_from(".....", ".###.", "....."), 1),
    "full": (mask_from("####", "####", "####"), 1),
    "one full pixel": (mask_from("#"), 1),
    "two parts": (mask_from("##..#", "##..#"), 2),
    "touching at a corner": (mask_from("##...", "##...", "..##.", "..##."), 1),
    "a hole": (mask_from("#####", "#...#", "#...#", "#####"), 2),
    "a hole of one pixel": (mask_from("###", "#.#", "###"), 2),
    "two holes": (mask_from("#######", "#..#..#", "#..#..#", "#######"), 3),
    "an island in a hole": (mask_from("#######", "#.....#", "#..#..#", "#.....#", "#######"), 3),
    "a hole in an island in a hole": (
        mask_from("#########", "#.......#", "#.#####.#", "#.#...#.#", "#.#####.#", "#.......#", "#########"), 4,
    ),
    "at every border": (mask_from("#.#", "...", "#.#"), 4),
    "a bay": (mask_from("#####", "#....", "#####"), 1),
}  # fmt: skip


@pytest.mark.parametrize(("mask", "count"), SHAPES.values(), ids=SHAPES)
def test_known_shapes_round_trip_with_the_expected_contours(mask: Mask, count: int) -> None:
    contours = contours_of_mask(mask)
    assert len(contours) == len(simplify(contours, 1000)) == count
    assert np.array_equal(round_trip(mask), mask)
    # Any value except 0 marks the object.
    assert np.array_equal(round_trip(mask * np.uint8(255)), mask)


def test_a_boundary_is_followed_by_its_own_holes() -> None:
    mask = mask_from("###.####", "#.#.#.##", "###.####")
    areas = [cv2.contourArea(contour) for contour in contours_of_mask(mask)]
    outer = [index for index, area in enumerate(areas) if area >= 4]
    assert outer == [0, 2]
    rings = contours_of_mask(mask)
    for boundary, hole in ((rings[0], rings[1]), (rings[2], rings[3])):
        assert boundary[:, 0].min() <= hole[:, 0].min() <= hole[:, 0].max() <= boundary[:, 0].max()


@given(st.integers(0, 2**32 - 1), st.integers(1, 24), st.integers(1, 24), st.sampled_from([0.1, 0.5, 0.8, 0.97]))
def test_random_masks_round_trip(seed: int, width: int, height: int, share: float) -> None:
    mask = (np.random.default_rng(seed).random((height, width)) < share).astype(np.uint8)
    assert np.array_equal(round_trip(mask), mask)


def circle(radius: int = 40) -> list[Contour]:
    mask = np.zeros((100, 100), np.uint8)
    cv2.circle(mask, (50, 50), radius, 1, cv2.FILLED)
    return contours_of_mask(mask)


def distance_to(contour: Contour, point: NDArray[np.float32]) -> float:
    """Return the distance of a point to the closed line through `contour`."""
    starts, ends = contour.astype(np.float64), np.roll(contour, -1, axis=0).astype(np.float64)
    along = ends - starts
    squared = np.maximum((along**2).sum(axis=1), 1e-12)
    share = np.clip(((point - starts) * along).sum(axis=1) / squared, 0, 1)
    return float(np.linalg.norm(starts + share[:, np.newaxis] * along - point, axis=1).min())


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_simplifying_drops_points_and_stays_within_epsilon(epsilon: float) -> None:
    (full,), (simple,) = circle(), simplify(circle(), epsilon)
    assert 3 <= len(simple) < len(full) == len(simplify(circle(), 0)[0])
    assert max(distance_to(simple, point) for point in full) <= epsilon + 1e-4
