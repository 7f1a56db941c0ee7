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
    scores = floats(0.6, 0.9, 0.6, 0.95, 0.9, 0.6)
    assert classified(scores) == ["3", "1", "4", "0", "2", "5"]
    assert detected(scores).labels == ["3", "1", "4", "0", "2", "5"]


def test_many_ties_keep_their_order() -> None:
    scores = np.tile(floats(0.6, 0.9, 0.6), 100)
    expected = sorted(range(300), key=lambda index: -scores[index])
    assert classified(scores) == [str(index) for index in expected]


def test_scores_and_boxes_are_sorted_with_their_labels() -> None:
    boxes = floats([0, 0, 1, 1], [0, 0, 2, 2], [0, 0, 3, 3])
    detections = detected(floats(0.6, 0.9, 0.7), boxes, "abc")
    assert [(record.label, record.score, record.xmax) for record in detections.records()] == [
        ("b", 0.9, 2), ("c", 0.7, 3), ("a", 0.6, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(("top_k", "count"), [(1, 1), (2, 2), (3, 3), (99, 3), (None, 3)])
def test_top_k_is_an_upper_bound(top_k: int | None, count: int) -> None:
    scores = floats(0.7, 0.9, 0.8)
    assert classified(scores, top_k=top_k) == ["1", "2", "0"][:count]
    assert detected(scores, top_k=top_k).labels == ["1", "2", "0"][:count]


def test_best_of_many_classes_are_sorted() -> None:
    scores = np.linspace(0, 1, 20, dtype=np.float32)
    assert classified(scores, top_k=2) == ["19", "18"]


def test_labels_are_filtered_before_top_k() -> None:
    scores = floats(0.9, 0.8, 0.7, 0.6)
    item = DetectionInput(IMAGE, DetectionParameters(labels=("b", "unknown"), top_k=1))
    prediction = Detections(labels=list("abab"), scores=scores, boxes=np.tile(floats(0, 0, 9, 9), (4, 1)))
    refined = ObjectDetection().postprocess(item, prediction)
    assert (refined.labels, refined.scores.tolist()) == (["b"], pytest.approx([0.8]))


def test_empty_or_unknown_label_filter_removes_everything() -> None:
    assert classified(floats(0.9), labels=()) == []
    assert classified(floats(0.9), labels=("no such",)) == []


@pytest.mark.parametrize("action", ["predict_proba", "detect", "", None])
def test_every_action_but_predict_returns_all_classes(action: str | None) -> None:
    assert classified(floats(0.1, 0.2), action=action) == ["1", "0"]


def test_predict_returns_the_best_matching_class() -> None:
    assert classified(floats(0.1, 0.9, 0.2), action="predict") == ["1"]
    assert classified(floats(0.1, 0.9, 0.2), action="predict", labels=("0", "2")) == ["2"]
    assert classified(floats(0.1, 0.2), action="predict", score_threshold=0.5) == []


def test_nan_scores_are_removed() -> None:
    assert classified(floats(NAN, 0.5, NAN), score_threshold=0.0) == ["1"]
    assert detected(floats(NAN, 0.9), score_threshold=0.0).labels == ["1"]
    assert oriented(floats(NAN, 0.9), floats([9, 9, 5, 5, 0], [9, 9, 5, 5, 0]), score_threshold=0.0) == ["1"]
    mask = np.ones((3, 3), np.uint8)
    assert segmented(floats(NAN, 0.9), mask, mask, score_threshold=0.0).labels == ["1"]


@pytest.mark.parametrize("edge", range(4))
def test_boxes_with_nan_are_removed(edge: int) -> None:
    box = [0.0, 0.0, 9.0, 9.0]
    box[edge] = NAN
    assert detected(floats(0.9, 0.8), floats(box, [0, 0, 9, 9]), score_threshold=0.0).labels == ["1"]


@pytest.mark.parametrize("side", range(4))
def test_oriented_boxes_with_nan_are_removed(side: int) -> None:
    box = [9.0, 9.0, 5.0, 5.0, 0.0]
    box[side] = NAN
    assert oriented(floats(0.9, 0.8), floats(box, [9, 9, 5, 5, 0]), score_threshold=0.0) == ["1"]


@pytest.mark.parametrize(
    "box",
    [[-20, -20, -1, -1], [200, 0, 300, 50], [0, 100, 50, 130], [5, 5, 5, 9], [9, 5, 5, 9], [-5, 0, 0, 9]],
    ids=str,
)
def test_boxes_outside_the_image_are_removed(box: list[float]) -> None:
    assert detected(floats(0.9), floats(box)).labels == []


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
    ],
    ids=str,
)  # fmt: skip
def test_oriented_boxes_are_filtered_by_their_centre(box: list[float], expected: bool) -> None:
    assert oriented(floats(0.9), floats(box)) == (["0"] if expected else [])


def test_segments_without_pixels_are_removed() -> None:
    empty, full = np.zeros((4, 4), np.uint8), np.ones((4, 4), np.uint8)
    assert segmented(floats(0.9, 0.8), empty, full).labels == ["1"]
    assert segmented(floats(0.9), empty, score_threshold=0.0).records() == []


def test_epsilon_simplifies_the_remaining_contours() -> None:
    grid = np.indices((50, 50)) - 25
    disc = ((grid**2).sum(axis=0) < 400).astype(np.uint8)
    full, thin = (segmented(floats(0.9), disc, epsilon=epsilon).contours[0][0] for epsilon in (0.0, 2.0))
    assert 3 <= len(thin) < len(full)


def test_empty_prediction_gives_no_records() -> None:
    none = np.zeros(0, np.float32)
    assert classified(none) == []
    assert detected(none, np.zeros((0, 4), np.float32)).records() == []
    assert oriented(none, np.zeros((0, 5), np.float32)) == []
    assert segmented(none).records() == []


def test_postprocessing_does_not_change_the_prediction() -> None:
    boxes = floats([-5, -5, 300, 300], [0, 0, 9, 9])
    prediction = Detections(labels=["a", "b"], scores=floats(0.6, 0.9), boxes=boxes)
    ObjectDetection().postprocess(DetectionInput(IMAGE, DetectionParameters(top_k=1)), prediction)
    assert prediction.boxes[0].tolist() == [-5, -5, 300, 300]
    assert prediction.labels == ["a", "b"]


def test_answers_are_returned_unchanged() -> None:
    answers = Answers(prompts=["b", "a"], answers=["", "x"])
    item = PromptedImage((IMAGE,), ["b", "a"], GenerationParameters())
    assert ImageTextToText().postprocess(item, answers) is answers


@pytest.mark.parametrize("box", [[5, 5, 5, 5, np.nan], [5, 5, np.inf, 5, 0], [5, 5, 5, 5, np.inf]], ids=str)
def test_oriented_boxes_that_are_not_finite_are_removed(box: list[float]) -> None:
    prediction = OrientedDetections(
        labels=["a"], scores=np.array([0.9], np.float32), boxes=np.array([box], np.float32), width=9, height=9
    )
    item = DetectionInput(Image(np.zeros((9, 9, 3), np.uint8)), DetectionParameters())
    assert OrientedObjectDetection().postprocess(item, prediction).records() == []


def test_infinite_scores_are_removed() -> None:
    boxes = np.array([[0, 0, 5, 5]], np.float32)
    prediction = Detections(labels=["a"], scores=np.array([np.inf], np.float32), boxes=boxes)
    item = DetectionInput(Image(np.zeros((9, 9, 3), np.uint8)), DetectionParameters())
    assert ObjectDetection().postprocess(item, prediction).records() == []


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
