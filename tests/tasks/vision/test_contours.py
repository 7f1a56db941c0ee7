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
    assert len(contours_of_mask(mask)) == count
    assert np.array_equal(round_trip(mask), mask)


def test_an_empty_mask_has_no_contours() -> None:
    assert contours_of_mask(np.zeros((5, 4), np.uint8)) == []
    assert not mask_of_contours([], 4, 5).any()
    assert mask_of_contours([], 4, 5).shape == (5, 4)


def test_one_pixel_is_a_contour_of_one_point() -> None:
    (contour,) = contours_of_mask(mask_from("...", "...", ".#."))
    assert contour.tolist() == [[1, 2]]


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


@given(st.integers(0, 2**32 - 1))
def test_random_blobs_round_trip(seed: int) -> None:
    noise = np.random.default_rng(seed).random((40, 60)).astype(np.float32)
    mask = (cv2.GaussianBlur(noise, (0, 0), 2) > 0.5).astype(np.uint8)
    assert np.array_equal(round_trip(mask), mask)


def test_any_nonzero_value_marks_the_object() -> None:
    mask = mask_from("###", "#.#", "###")
    assert [contour.tolist() for contour in contours_of_mask(mask * np.uint8(255))] == [
        contour.tolist() for contour in contours_of_mask(mask)
    ]


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
    assert 3 <= len(simple) < len(full)
    assert max(distance_to(simple, point) for point in full) <= epsilon + 1e-4


def test_a_larger_epsilon_keeps_no_more_points() -> None:
    counts = [len(simplify(circle(), epsilon)[0]) for epsilon in (0, 0.5, 1, 2, 5, 20)]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] < counts[0]


def test_an_epsilon_of_0_changes_nothing() -> None:
    assert np.array_equal(simplify(circle(), 0)[0], circle()[0])


def test_simplifying_keeps_every_contour() -> None:
    contours = contours_of_mask(SHAPES["an island in a hole"][0])
    simple = simplify(contours, 1000)
    assert len(simple) == len(contours)
    assert all(len(contour) >= 1 and contour.dtype == np.float32 for contour in simple)
