"""Clipping and suppression of boxes, compared with a simple reference implementation."""

import math

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tasks.vision.filtering import clip_boxes, suppress_boxes, suppress_rotated_boxes, xywh_to_xyxy

Floats = NDArray[np.float32]


def iou(a: Floats, b: Floats) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    shared = float(width) * float(height)
    areas = [float(box[2] - box[0]) * float(box[3] - box[1]) for box in (a, b)]
    return shared / (sum(areas) - shared)


def rotated_iou(a: Floats, b: Floats) -> float:
    first, second = (((float(x), float(y)), (float(w), float(h)), math.degrees(float(r))) for x, y, w, h, r in (a, b))
    _, corners = cv2.rotatedRectangleIntersection(first, second)
    shared = cv2.contourArea(cv2.convexHull(corners)) if corners is not None else 0.0  # pyright: ignore
    return shared / float(a[2] * a[3] + b[2] * b[3] - shared)


def no_overlap_is_near_the_threshold(boxes: Floats, threshold: float, rotated: bool) -> bool:
    """Return whether rounding cannot decide any overlap, because none is near the threshold."""
    measure = rotated_iou if rotated else iou
    pairs = [(boxes[i], boxes[j]) for i in range(len(boxes)) for j in range(i)]
    return all(abs(measure(a, b) - threshold) > 1e-3 for a, b in pairs) and not (
        rotated and any(nested(*p) for p in pairs)
    )


def nested(a: Floats, b: Floats) -> bool:
    """Return whether one oriented box lies inside the other."""
    return rotated_iou(a, b) * float(max(a[2] * a[3], b[2] * b[3])) > float(min(a[2] * a[3], b[2] * b[3])) * 0.999


def greedy(boxes: Floats, scores: Floats, classes: NDArray[np.intp], threshold: float, rotated: bool) -> list[int]:
    measure = rotated_iou if rotated else iou
    kept: list[int] = []
    for index in np.argsort(-scores, kind="stable").tolist():
        rivals = [other for other in kept if classes[other] == classes[index]]
        if all(measure(boxes[index], boxes[other]) <= threshold for other in rivals):
            kept.append(index)
    return kept


@given(st.integers(0, 2**32 - 1), st.integers(0, 14), st.sampled_from([0.1, 0.45, 0.7, 0.95]))
def test_suppression_is_greedy_within_a_class(seed: int, count: int, threshold: float) -> None:
    random = np.random.default_rng(seed)
    corner, size = random.uniform(-60, 60, (count, 2)), random.uniform(5, 60, (count, 2))
    boxes = np.concatenate([corner, corner + size], axis=1, dtype=np.float32)
    scores = random.permutation(np.linspace(0.05, 0.95, count)).astype(np.float32)
    classes = random.integers(0, 3, count)
    if no_overlap_is_near_the_threshold(boxes, threshold, rotated=False):
        expected = greedy(boxes, scores, classes, threshold, rotated=False)
        assert suppress_boxes(boxes, scores, classes, threshold).tolist() == expected


@given(st.integers(0, 2**32 - 1), st.integers(0, 8), st.sampled_from([0.1, 0.45, 0.7]))
def test_rotated_suppression_is_greedy_within_a_class(seed: int, count: int, threshold: float) -> None:
    random = np.random.default_rng(seed)
    columns = [
        random.uniform(-30, 30, (count, 2)),
        random.uniform(10, 60, (count, 2)),
        random.uniform(-math.pi, math.pi, (count, 1)),
    ]
    boxes = np.concatenate(columns, axis=1, dtype=np.float32)
    scores = random.permutation(np.linspace(0.05, 0.95, count)).astype(np.float32)
    classes = random.integers(0, 2, count)
    if no_overlap_is_near_the_threshold(boxes, threshold, rotated=True):
        expected = greedy(boxes, scores, classes, threshold, rotated=True)
        assert suppress_rotated_boxes(boxes, scores, classes, threshold).tolist() == expected


def test_boxes_of_different_classes_do_not_suppress_each_other() -> None:
    boxes = np.array([[-500, -500, -400, -400], [-500, -500, -400, -400], [100, 100, 200, 200]], np.float32)
    scores = np.array([0.5, 0.9, 0.7], np.float32)
    assert suppress_boxes(boxes, scores, np.array([0, 1, 1]), 0.5).tolist() == [1, 2, 0]


def test_worse_of_two_equal_boxes_is_suppressed() -> None:
    boxes = np.array([[0, 0, 9, 9]] * 2, np.float32)
    assert suppress_boxes(boxes, np.array([0.3, 0.4], np.float32), np.array([0, 0]), 0.5).tolist() == [1]
    oriented = np.array([[5, 5, 9, 3, 0.4]] * 2, np.float32)
    assert suppress_rotated_boxes(oriented, np.array([0.3, 0.4], np.float32), np.array([0, 0]), 0.5).tolist() == [1]


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_boxes_are_kept(count: int) -> None:
    scores, classes = np.ones(count, np.float32), np.zeros(count, np.intp)
    assert suppress_boxes(np.zeros((count, 4), np.float32), scores, classes, 0.5).tolist() == list(range(count))
    assert suppress_rotated_boxes(np.zeros((count, 5), np.float32), scores, classes, 0.5).tolist() == list(range(count))


def test_box_rotated_by_half_a_turn_is_the_same_box() -> None:
    boxes = np.array([[50, 50, 40, 10, 0.3], [50, 50, 40, 10, 0.3 + math.pi], [50, 50, 10, 40, 0.3]], np.float32)
    scores = np.array([0.9, 0.8, 0.7], np.float32)
    assert suppress_rotated_boxes(boxes, scores, np.zeros(3, np.intp), 0.5).tolist() == [0, 2]


def test_clipping_changes_only_boxes_beyond_the_image() -> None:
    boxes = np.array([[-5, -6, 300, 400], [1.5, 2.5, 3.5, 4.5], [250, 150, 300, 200]], np.float32)
    clipped = clip_boxes(boxes, 200, 100)
    assert clipped.tolist() == [[0, 0, 200, 100], [1.5, 2.5, 3.5, 4.5], [200, 100, 200, 100]]
    assert clipped.dtype == np.float32
    assert boxes[0, 0] == -5, "the caller's array is left alone"


def test_centres_and_sizes_become_corners() -> None:
    assert xywh_to_xyxy(np.array([[10, 20, 4, 6], [0, 0, 1, 1]], np.float32)).tolist() == [
        [8, 17, 12, 23],
        [-0.5, -0.5, 0.5, 0.5],
    ]
    assert xywh_to_xyxy(np.zeros((0, 4), np.float32)).shape == (0, 4)


def test_oriented_box_inside_a_better_one_is_kept() -> None:
    boxes = np.array([[50, 50, 80, 80, 0.1], [50, 50, 8, 8, 0.1]], np.float32)
    assert suppress_rotated_boxes(boxes, np.array([0.9, 0.8], np.float32), np.array([0, 0]), 0.45).tolist() == [0, 1]
