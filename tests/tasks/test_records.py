"""Predictions as records: field names, order, units and digits."""

import math

import cv2
import msgspec
import numpy as np
import pytest

from tasks.image_classification import Classification
from tasks.image_segmentation import Segments
from tasks.image_text_to_text import Answers
from tasks.object_detection import Detections
from tasks.oriented_object_detection import OrientedDetections, OrientedObject


def text(records: object) -> str:
    return msgspec.json.encode(records).decode()


def test_classification_is_label_then_score() -> None:
    records = Classification(labels=["cat"], scores=np.array([0.5], np.float32)).records()
    assert text(records) == '[{"label":"cat","score":0.5}]'


def test_detection_is_label_score_and_corners() -> None:
    boxes = np.array([[7, 50, 17, 77]], np.float32)
    records = Detections(labels=["cat"], scores=np.array([0.5], np.float32), boxes=boxes).records()
    assert text(records) == '[{"label":"cat","score":0.5,"xmin":7.0,"ymin":50.0,"xmax":17.0,"ymax":77.0}]'


def test_oriented_detection_is_label_score_centre_size_and_angle() -> None:
    boxes = np.array([[50, 25, 20, 10, 0.25]], np.float32)
    prediction = OrientedDetections(
        labels=["cat"], scores=np.array([0.5], np.float32), boxes=boxes, width=200, height=100
    )
    expected = '[{"label":"cat","score":0.5,"cx":0.25,"cy":0.25,"w":0.1,"h":0.1,"r":0.25}]'
    assert text(prediction.records()) == expected


def test_segmentation_is_label_score_and_lists_of_points() -> None:
    contours = [[np.array([[1, 2], [3, 4]], np.float32), np.array([[5, 6]], np.float32)]]
    records = Segments(labels=["cat"], scores=np.array([0.5], np.float32), contours=contours).records()
    points = '[{"x":1.0,"y":2.0},{"x":3.0,"y":4.0}],[{"x":5.0,"y":6.0}]'
    assert text(records) == f'[{{"label":"cat","score":0.5,"contour":[{points}]}}]'


def test_answer_record_is_prompt_then_answer() -> None:
    records = Answers(prompts=["what?"], answers=["dogs"]).records()
    assert text(records) == '[{"prompt":"what?","answer":"dogs"}]'


@pytest.mark.parametrize("score", [0.1, 0.3, 0.7, 0.9, 0.999, 1.0, 0.0, 0.1234567])
def test_scores_are_rounded_to_float32_precision(score: float) -> None:
    (record,) = Classification(labels=["a"], scores=np.array([score], np.float32)).records()
    assert record.score == score


@pytest.mark.parametrize("pixel", [0.1, 33.3, 1023.4, 4095.25, 0.0001])
def test_pixels_are_rounded_to_four_digits(pixel: float) -> None:
    boxes = np.array([[0, 0, pixel, 1]], np.float32)
    (record,) = Detections(labels=["a"], scores=np.ones(1, np.float32), boxes=boxes).records()
    assert record.xmax == pytest.approx(pixel, abs=1e-4)
    assert len(str(record.xmax).partition(".")[2]) <= 4


def test_labels_scores_and_boxes_must_have_equal_lengths() -> None:
    with pytest.raises(ValueError):
        Classification(labels=["a"], scores=np.ones(2, np.float32)).records()
    with pytest.raises(ValueError):
        Detections(labels=["a"], scores=np.ones(1, np.float32), boxes=np.ones((2, 4), np.float32)).records()


WIDTH, HEIGHT = 1000, 500
TRUTH = ((400.0, 200.0), (200.0, 40.0), 90.0)
OrientedBox = tuple[tuple[float, float], tuple[float, float], float]


def overlap(a: OrientedBox, b: OrientedBox) -> float:
    corners = cv2.rotatedRectangleIntersection(a, b)[1]
    shared = cv2.contourArea(np.asarray(cv2.convexHull(corners)))
    return shared / (a[1][0] * a[1][1] + b[1][0] * b[1][1] - shared)


def record_of_a_quarter_turn() -> OrientedObject:
    (x, y), (w, h), degrees = TRUTH
    boxes = np.array([[x, y, w, h, math.radians(degrees)]], np.float32)
    scores = np.ones(1, np.float32)
    (record,) = OrientedDetections(labels=["a"], scores=scores, boxes=boxes, width=WIDTH, height=HEIGHT).records()
    return record


def test_oriented_box_is_divided_by_the_image_size_at_any_rotation() -> None:
    record = record_of_a_quarter_turn()
    assert (record.cx, record.cy, record.w, record.h) == (0.4, 0.4, 0.2, 0.08)
    assert record.r == pytest.approx(math.pi / 2, abs=1e-6)


def test_oriented_box_must_be_scaled_before_it_is_rotated() -> None:
    record = record_of_a_quarter_turn()
    centre = (record.cx * WIDTH, record.cy * HEIGHT)
    right = (centre, (record.w * WIDTH, record.h * HEIGHT), math.degrees(record.r))
    assert overlap(right, TRUTH) == pytest.approx(1, abs=1e-4)
    # Rotating a normalized box by a quarter turn swaps its sides, which then scale by the wrong axes.
    wrong = (centre, (record.h * WIDTH, record.w * HEIGHT), 0.0)
    assert overlap(wrong, TRUTH) == pytest.approx(1 / 3, abs=1e-3)
