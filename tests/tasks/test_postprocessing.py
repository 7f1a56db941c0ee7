"""Postprocessing: predictions are filtered by the parameters of the request."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tasks.image_classification import Classification, ClassificationInput, ImageClassification
from tasks.image_segmentation import ImageSegmentation, SegmentationInput, SegmentationParameters, Segments
from tasks.image_text_to_text import Answers, GenerationParameters, ImageTextToText, PromptedImage
from tasks.inference.error import InferenceError
from tasks.object_detection import DetectionInput, DetectionParameters, Detections, ObjectDetection
from tasks.oriented_object_detection import OrientedDetections, OrientedObjectDetection
from tasks.vision.contours import contours_of_mask
from tasks.vision.filtering import SelectionParameters, check_candidate_labels, select
from tasks.vision.image import Image

IMAGE = Image(np.zeros((100, 200, 3), np.uint8))
NAN = math.nan


def floats(*values: Any) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def classified(scores: NDArray[np.float32], **parameters: Any) -> list[str]:
    prediction = Classification(labels=[str(index) for index in range(len(scores))], scores=scores)
    item = ClassificationInput(IMAGE, SelectionParameters(**parameters))
    return list(ImageClassification().postprocess(item, prediction).labels)


def detected(
    scores: NDArray[np.float32], boxes: NDArray[np.float32] | None = None, labels: str = "", **parameters: Any
) -> Detections:
    count = len(scores)
    all_boxes = boxes if boxes is not None else np.tile(floats(0, 0, 9, 9), (count, 1))
    names = list(labels) or [str(index) for index in range(count)]
    item = DetectionInput(IMAGE, DetectionParameters(**parameters))
    return ObjectDetection().postprocess(item, Detections(labels=names, scores=scores, boxes=all_boxes))


def oriented(scores: NDArray[np.float32], boxes: NDArray[np.float32], **parameters: Any) -> list[str]:
    names = [str(index) for index in range(len(scores))]
    prediction = OrientedDetections(labels=names, scores=scores, boxes=boxes, width=200, height=100)
    item = DetectionInput(IMAGE, DetectionParameters(**parameters))
    return list(OrientedObjectDetection().postprocess(item, prediction).labels)


def segmented(scores: NDArray[np.float32], *masks: NDArray[np.uint8], **parameters: Any) -> Segments:
    names = [str(index) for index in range(len(scores))]
    prediction = Segments(labels=names, scores=scores, contours=[contours_of_mask(mask) for mask in masks])
    return ImageSegmentation().postprocess(SegmentationInput(IMAGE, SegmentationParameters(**parameters)), prediction)


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.3, 0.7, 0.9, 1.0, 1 / 3])
def test_a_score_equal_to_the_threshold_is_kept(threshold: float) -> None:
    equal = np.float32(threshold)
    below = np.nextafter(equal, np.float32(-1))
    scores = floats(equal, below)
    assert classified(scores, score_threshold=threshold) == ["0"]
    assert detected(scores, score_threshold=threshold).labels == ["0"]
    assert oriented(scores, floats([9, 9, 5, 5, 0], [9, 9, 5, 5, 0]), score_threshold=threshold) == ["0"]


def test_best_scores_come_first_and_ties_keep_their_order() -> None:
    scores = np.tile(floats(0.6, 0.9, 0.6), 100)
    expected = [str(index) for index in sorted(range(300), key=lambda index: -scores[index])]
    assert classified(scores) == detected(scores).labels == expected
    boxes = floats([0, 0, 1, 1], [-9, 0, 2, 2], [0, 0, 3, 3])
    detections = detected(floats(0.6, 0.9, 0.7), boxes, "abc")
    assert [(record.label, record.score, record.xmin, record.xmax) for record in detections.records()] == [
        ("b", 0.9, 0, 2), ("c", 0.7, 0, 3), ("a", 0.6, 0, 1),
    ]  # fmt: skip
    assert boxes[1, 0] == -9, "the prediction stays as it was"


@pytest.mark.parametrize(("top_k", "count"), [(1, 1), (2, 2), (3, 3), (99, 3), (None, 3)])
def test_top_k_is_an_upper_bound(top_k: int | None, count: int) -> None:
    scores = floats(0.7, 0.9, 0.8)
    assert classified(scores, top_k=top_k) == detected(scores, top_k=top_k).labels == ["1", "2", "0"][:count]
    # The best of many classes are partitioned before they are sorted.
    assert top_k != 2 or classified(np.linspace(0, 1, 20, dtype=np.float32), top_k=2) == ["19", "18"]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, ["1", "2", "0"]),
        ({"action": "predict_proba"}, ["1", "2", "0"]),
        ({"action": "detect"}, ["1", "2", "0"]),
        ({"action": "predict"}, ["1"]),
        ({"action": "predict", "labels": ("0", "2")}, ["2"]),
        ({"action": "predict", "score_threshold": 0.95}, []),
        ({"labels": ("0", "2", "unknown"), "top_k": 1}, ["2"]),
        ({"labels": ()}, []),
        ({"labels": ("unknown",)}, []),
    ],
)
def test_classes_are_chosen_by_action_and_labels_before_top_k(parameters: dict[str, Any], expected: list[str]) -> None:
    assert classified(floats(0.1, 0.9, 0.2), **parameters) == expected


@pytest.mark.parametrize("score", [NAN, math.inf])
def test_scores_that_are_not_finite_are_removed(score: float) -> None:
    scores, mask = floats(score, 0.9), np.ones((3, 3), np.uint8)
    assert classified(scores) == detected(scores, score_threshold=0.0).labels == ["1"]
    assert oriented(scores, floats([9, 9, 5, 5, 0], [9, 9, 5, 5, 0]), score_threshold=0.0) == ["1"]
    assert segmented(scores, mask, mask, score_threshold=0.0).labels == ["1"]


@pytest.mark.parametrize(
    "box",
    [
        [-20, -20, -1, -1], [200, 0, 300, 50], [0, 100, 50, 130], [5, 5, 5, 9], [9, 5, 5, 9], [-5, 0, 0, 9],
        [NAN, 0, 9, 9], [0, NAN, 9, 9], [0, 0, NAN, 9], [0, 0, 9, NAN],
    ],
    ids=str,
)  # fmt: skip
def test_boxes_outside_the_image_or_with_nan_are_removed(box: list[float]) -> None:
    assert detected(floats(0.9, 0.8), floats(box, [0, 0, 9, 9])).labels == ["1"]


def test_boxes_are_clipped_to_the_image() -> None:
    detections = detected(floats(0.9, 0.8), floats([-5, -5, 300, 300], [-np.inf, 0, np.inf, 7]))
    assert detections.boxes.tolist() == [[0, 0, 200, 100], [0, 0, 200, 7]]


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ([0, 0, 5, 5, 0], True), ([200, 100, 5, 5, 0], True),
        ([200.5, 50, 5, 5, 0], False), ([-0.5, 50, 5, 5, 0], False),
        ([50, 100.5, 5, 5, 0], False), ([50, 50, 0, 5, 0], False),
        ([50, 50, 5, -1, 0], False), ([50, 50, 500, 5, 1], True),
        ([NAN, 9, 5, 5, 0], False), ([9, NAN, 5, 5, 0], False),
        ([9, 9, NAN, 5, 0], False), ([9, 9, 5, NAN, 0], False),
        ([5, 5, 5, 5, NAN], False), ([5, 5, math.inf, 5, 0], False), ([5, 5, 5, 5, math.inf], False),
    ],
    ids=str,
)  # fmt: skip
def test_oriented_boxes_are_filtered_by_their_centre(box: list[float], expected: bool) -> None:
    assert oriented(floats(0.9), floats(box)) == (["0"] if expected else [])


def test_epsilon_simplifies_the_remaining_contours() -> None:
    grid = np.indices((50, 50)) - 25
    disc = ((grid**2).sum(axis=0) < 400).astype(np.uint8)
    full, thin = (segmented(floats(0.9), disc, epsilon=epsilon).contours[0][0] for epsilon in (0.0, 2.0))
    assert 3 <= len(thin) < len(full)


def test_empty_predictions_and_masks_give_no_records() -> None:
    none, empty = np.zeros(0, np.float32), np.zeros((4, 4), np.uint8)
    assert classified(none) == oriented(none, np.zeros((0, 5), np.float32)) == []
    assert detected(none, np.zeros((0, 4), np.float32)).records() == []
    assert segmented(none).records() == segmented(floats(0.9), empty, score_threshold=0.0).records() == []
    assert segmented(floats(0.9, 0.8), empty, np.ones((4, 4), np.uint8)).labels == ["1"]


def test_answers_are_returned_unchanged() -> None:
    answers = Answers(prompts=["b", "a"], answers=["", "x"])
    item = PromptedImage((IMAGE,), ["b", "a"], GenerationParameters())
    assert ImageTextToText().postprocess(item, answers) is answers


@given(st.lists(st.sampled_from([0.0, 0.1, 0.1, 0.25, 0.5, 0.5, 0.9, float("nan")]), max_size=60), st.integers(1, 12))
def test_top_k_returns_a_prefix_of_all_predictions(scores: list[float], top_k: int) -> None:
    array = np.array(scores, np.float32)
    labels = [str(index) for index in range(len(scores))]
    all_predictions = select(array, labels, SelectionParameters())
    assert select(array, labels, SelectionParameters(top_k=top_k)) == all_predictions[:top_k]


@pytest.mark.parametrize(("count", "length"), [(257, 1), (1, 257)])
def test_too_many_or_too_long_candidate_labels_are_rejected(count: int, length: int) -> None:
    check_candidate_labels(SelectionParameters(candidate_labels=("a" * 256,) * 256), "parameters")
    with pytest.raises(InferenceError, match="at most 256 labels of at most 256 characters") as caught:
        check_candidate_labels(SelectionParameters(candidate_labels=("a" * length,) * count), "parameters")
    assert caught.value.path == "parameters.candidate_labels"
