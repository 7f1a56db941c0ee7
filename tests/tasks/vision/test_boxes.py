"""Clipping and suppression of boxes, compared with a simple reference implementation."""

import math
from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tasks.vision.filtering import clip_boxes, suppress_boxes, suppress_rotated_boxes

Floats = NDArray[np.float32]
Measure = Callable[[Floats, Floats], float]


def iou(a: Floats, b: Floats) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    shared = float(width) * float(height)
    areas = [float(box[2] - box[0]) * float(box[3] - box[1]) for box in (a, b)]
    return shared / (sum(areas) - shared)


def probabilistic_iou(first: Floats, second: Floats) -> float:
    """Return 1 minus the Hellinger distance of two oriented boxes as Gaussians (`batch_probiou` of Ultralytics).

    Rows are x and y of the centre, width, height and the angle.
    """
    covariances: list[NDArray[np.float64]] = []
    for _, _, width, height, angle in (first.tolist(), second.tolist()):
        axes = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        covariances.append(axes @ np.diag([width**2, height**2]) @ axes.T / 12)
    mean, difference = (covariances[0] + covariances[1]) / 2, (first[:2] - second[:2]).astype(np.float64)
    determinant = np.sqrt(np.linalg.det(covariances[0]) * np.linalg.det(covariances[1]))
    distance = difference @ np.linalg.inv(mean) @ difference / 8 + np.log(np.linalg.det(mean) / determinant) / 2
    return 1 - float(np.sqrt(max(1 - np.exp(-distance), 0)))


def no_overlap_is_near_the_threshold(boxes: Floats, threshold: float, measure: Measure) -> bool:
    """Return whether rounding cannot decide any overlap, because none is near the threshold."""
    return all(abs(measure(a, b) - threshold) > 1e-3 for a, b in combinations(boxes, 2))


@given(st.booleans(), st.integers(0, 2**32 - 1), st.integers(0, 14), st.sampled_from([0.1, 0.45, 0.7, 0.95]))
def test_suppression_is_greedy_within_a_class(agnostic: bool, seed: int, count: int, threshold: float) -> None:
    random = np.random.default_rng(seed)
    corner, size = random.uniform(-60, 60, (count, 2)), random.uniform(5, 60, (count, 2))
    boxes = np.concatenate([corner, corner + size], axis=1, dtype=np.float32)
    scores = random.permutation(np.linspace(0.05, 0.95, count)).astype(np.float32)
    classes = random.integers(0, 3, count)
    if no_overlap_is_near_the_threshold(boxes, threshold, iou):
        kept: list[int] = []
        for index in np.argsort(-scores, kind="stable").tolist():
            rivals = [other for other in kept if agnostic or classes[other] == classes[index]]
            if all(iou(boxes[index], boxes[other]) <= threshold for other in rivals):
                kept.append(index)
        assert suppress_boxes(boxes, scores, classes, threshold, agnostic=agnostic).tolist() == kept


@given(st.booleans(), st.integers(0, 2**32 - 1), st.integers(0, 8), st.sampled_from([0.1, 0.45, 0.7]))
def test_rotated_boxes_are_suppressed_by_better_ones_as_in_ultralytics(
    agnostic: bool, seed: int, count: int, threshold: float
) -> None:
    random = np.random.default_rng(seed)
    centres, sizes = random.uniform(-30, 30, (count, 2)), random.uniform(10, 60, (count, 2))
    columns = [centres, sizes, random.uniform(-math.pi, math.pi, (count, 1))]
    boxes = np.concatenate(columns, axis=1, dtype=np.float32)
    scores = random.permutation(np.linspace(0.05, 0.95, count)).astype(np.float32)
    classes = random.integers(0, 2, count)
    if no_overlap_is_near_the_threshold(boxes, threshold, probabilistic_iou):
        order = np.argsort(-scores, kind="stable").tolist()
        # Unlike greedy suppression, boxes that are dropped themselves count too.
        expected = [
            index
            for rank, index in enumerate(order)
            if not any(
                (agnostic or classes[other] == classes[index])
                and probabilistic_iou(boxes[index], boxes[other]) >= threshold
                for other in order[:rank]
            )
        ]
        assert suppress_rotated_boxes(boxes, scores, classes, threshold, agnostic=agnostic).tolist() == expected


def test_many_rotated_boxes_are_suppressed_across_blocks() -> None:
    boxes = np.tile(np.array([[50, 50, 40, 10, 0.3], [90, 90, 40, 10, 0.3]], np.float32), (300, 1))
    scores = np.linspace(0.9, 0.1, 600, dtype=np.float32)
    assert suppress_rotated_boxes(boxes, scores, np.zeros(600, np.intp), 0.5).tolist() == [0, 1]
    assert len(suppress_rotated_boxes(boxes, scores, np.arange(600) // 2, 0.5)) == 600


@pytest.mark.parametrize("size", [0, 1e-30, 1e30])
def test_rotated_boxes_of_extreme_sizes_are_compared(size: float) -> None:
    boxes = np.array([[1, 2, size, size, 0.1], [1, 2, size, 0, 0.1], [1, 2, size, size, 0.1]], np.float32)
    kept = suppress_rotated_boxes(boxes, np.array([0.9, 0.8, 0.7], np.float32), np.array([0, 0, 0]), 0.5)
    assert kept[0] == 0
    assert 2 not in kept


def test_clipping_changes_only_boxes_beyond_the_image() -> None:
    boxes = np.array([[-5, -6, 300, 400], [1.5, 2.5, 3.5, 4.5], [250, 150, 300, 200]], np.float32)
    clipped = clip_boxes(boxes, 200, 100)
    assert clipped.tolist() == [[0, 0, 200, 100], [1.5, 2.5, 3.5, 4.5], [200, 100, 200, 100]]
    assert clipped.dtype == np.float32
    assert boxes[0, 0] == -5, "the caller's array is left alone"
