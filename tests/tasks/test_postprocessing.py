"""Postprocessing: predictions are filtered by the parameters of the request."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tasks.image_classification import Classification, ClassificationInput, ImageClassification
from tasks.image_segmentation import ImageSegmentation, SegmentationInput, SegmentationParameters, Segments
from tasks.image_text_to_text import Answers, GenerationParameters, ImageTextToText, PromptedImage
from tasks.inference.error import ErrorKind
from tasks.object_detection import DetectionInput, DetectionParameters, Detections, ObjectDetection
from tasks.oriented_object_detection import OrientedDetections, OrientedObjectDetection
from tasks.vision.contours import contours_of_mask
from tasks.vision.filtering import SelectionParameters, check_candidate_labels, select
from tasks.vision.image import Image
from tests.support.rejection import rejects

IMAGE = Image(np.zeros((100, 200, 3), np.uint8))
NAN = math.nan


def floats(*values: Any) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def classified(scores: NDArray[np.float32], **parameters: Any) -> list[str]:
    prediction = Classification(labels=[str(index) for index in range(len(scores))], scores=scores)
    item = ClassificationInput(IMAGE, SelectionParameters(**parameters))
    return list(ImageClassification().postprocess(item, prediction).labels)


def detected(
    scores: NDArray[np.float32],
    boxes: NDArray[np.float32] | None = None,
    names: Sequence[str] = (),
    keypoints: NDArray[np.float32] | None = None,
    **parameters: Any,
) -> Detections:
    labels = names or [str(index) for index in range(len(scores))]
    all_boxes = boxes if boxes is not None else np.tile(floats(0, 0, 9, 9), (len(scores), 1))
    prediction = Detections(labels=labels, scores=scores, boxes=all_boxes, keypoints=keypoints)
    return ObjectDetection().postprocess(DetectionInput(IMAGE, DetectionParameters(**parameters)), prediction)


def oriented(
    scores: NDArray[np.float32], boxes: NDArray[np.float32], names: Sequence[str] = (), **parameters: Any
) -> OrientedDetections:
    labels = names or [str(index) for index in range(len(scores))]
    prediction = OrientedDetections(labels=labels, scores=scores, boxes=boxes, width=200, height=100)
    return OrientedObjectDetection().postprocess(DetectionInput(IMAGE, DetectionParameters(**parameters)), prediction)


def segmented(
    scores: NDArray[np.float32], *masks: NDArray[np.uint8], names: Sequence[str] = (), **parameters: Any
) -> Segments:
    labels = names or [str(index) for index in range(len(scores))]
    prediction = Segments(labels=labels, scores=scores, contours=[contours_of_mask(mask) for mask in masks])
    return ImageSegmentation().postprocess(SegmentationInput(IMAGE, SegmentationParameters(**parameters)), prediction)


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.3, 0.7, 0.9, 1.0, 1 / 3])
def test_a_score_equal_to_the_threshold_is_kept(threshold: float) -> None:
    equal = np.float32(threshold)
    below = np.nextafter(equal, np.float32(-1))
    scores = floats(equal, below)
    assert classified(scores, score_threshold=threshold) == ["0"]
    assert detected(scores, score_threshold=threshold).labels == ["0"]
    assert oriented(scores, floats([9, 9, 5, 5, 0], [9, 9, 5, 5, 0]), score_threshold=threshold).labels == ["0"]


def test_best_scores_come_first_and_ties_keep_their_order() -> None:
    scores = np.tile(floats(0.6, 0.9, 0.6), 100)
    expected = [str(index) for index in sorted(range(300), key=lambda index: -scores[index])]
    assert classified(scores) == detected(scores).labels == expected
    boxes = floats([0, 0, 1, 1], [-9, 0, 2, 2], [0, 0, 3, 3])
    detections = detected(floats(0.6, 0.9, 0.7), boxes, ["a", "b", "c"])
    assert [(record.label, record.score, record.xmin, record.xmax) for record in detections.records()] == [
        ("b", 0.9, 0, 2), ("c", 0.7, 0, 3), ("a", 0.6, 0, 1),
    ]  # fmt: skip
    assert boxes[1, 0] == -9, "the prediction stays as it was"


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
    assert oriented(scores, floats([9, 9, 5, 5, 0], [9, 9, 5, 5, 0]), score_threshold=0.0).labels == ["1"]
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
    assert oriented(floats(0.9), floats(box)).labels == (["0"] if expected else [])


def test_epsilon_simplifies_the_remaining_contours() -> None:
    grid = np.indices((50, 50)) - 25
    disc = ((grid**2).sum(axis=0) < 400).astype(np.uint8)
    full, thin = (segmented(floats(0.9), disc, epsilon=epsilon).contours[0][0] for epsilon in (0.0, 2.0))
    assert 3 <= len(thin) < len(full)


def test_empty_predictions_and_masks_give_no_records() -> None:
    none, empty = np.zeros(0, np.float32), np.zeros((4, 4), np.uint8)
    assert classified(none) == oriented(none, np.zeros((0, 5), np.float32)).labels == []
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
    with rejects("at most 256 labels of at most 256 characters", "parameters.candidate_labels", ErrorKind.TOO_LARGE):
        check_candidate_labels(SelectionParameters(candidate_labels=("a" * length,) * count), "parameters")


# The first three of these objects overlap, and the last one is elsewhere.
LABELS, SCORES = ["cat", "cat", "dog", "cat"], floats(0.7, 0.8, 0.9, 0.6)
BOXES = floats([10, 10, 50, 50], [12, 10, 50, 50], [10, 12, 50, 50], [90, 10, 130, 50])


def overlapping(kind: str, **parameters: Any) -> Any:
    match kind:
        case "box":
            return detected(SCORES, BOXES, LABELS, **parameters)
        case "oriented":
            boxes = floats(*([(left + right) / 2, 30, right - left, 15, 0.4] for left, _, right, _ in BOXES.tolist()))
            return oriented(SCORES, boxes, LABELS, **parameters)
        case _:
            masks = np.zeros((4, 100, 200), np.uint8)
            for mask, (left, top, right, bottom) in zip(masks, BOXES.astype(int).tolist(), strict=True):
                mask[top:bottom, left:right] = 1
            return segmented(SCORES, *masks, names=LABELS, **parameters)


@pytest.mark.parametrize("kind", ["box", "oriented", "contour"])
@pytest.mark.parametrize(
    ("parameters", "scores"),
    [
        ({}, [0.9, 0.8, 0.7, 0.6]),
        ({"agnostic": True}, [0.9, 0.8, 0.7, 0.6]),
        ({"nms": True}, [0.9, 0.8, 0.6]),
        ({"nms": True, "agnostic": True}, [0.9, 0.6]),
        ({"nms": True, "iou_threshold": 1.0}, [0.9, 0.8, 0.7, 0.6]),
        # The threshold on the number counts the objects that suppression keeps.
        ({"nms": True, "top_k": 3}, [0.9, 0.8, 0.6]),
        # An object whose class is filtered out still suppresses others.
        ({"nms": True, "agnostic": True, "labels": ("cat",)}, [0.6]),
        ({"nms": True, "score_threshold": 1.0}, []),
    ],
    ids=str,
)
def test_nms_drops_the_worse_of_two_objects(kind: str, parameters: dict[str, Any], scores: list[float]) -> None:
    assert overlapping(kind, **parameters).scores.tolist() == pytest.approx(scores)


def test_nms_ignores_boxes_that_are_outside_the_image_or_not_finite() -> None:
    boxes = floats([300, 10, 340, 50], [NAN, 10, 50, 50], [10, 10, 50, 50])
    assert detected(floats(0.9, 0.8, 0.7), boxes, ["cat"] * 3, nms=True).boxes.tolist() == boxes[2:].tolist()


def test_nms_keeps_boxes_with_their_own_keypoints() -> None:
    points = np.arange(8, dtype=np.float32).reshape(4, 1, 2)
    found = detected(SCORES, BOXES, LABELS, points, nms=True)
    assert found.keypoints is not None
    assert found.keypoints.tolist() == points[[2, 1, 3]].tolist()


def test_nms_compares_only_the_best_oriented_boxes() -> None:
    boxes = floats([100, 50, 4, 2, 0]).repeat(2500, axis=0)
    found = oriented(np.linspace(0.1, 0.9, 2500, dtype=np.float32), boxes, nms=True, score_threshold=0.0)
    assert len(found.labels) == 2000
    assert found.labels[0] == "2499"


@pytest.mark.parametrize("labels", [None, (), ("a", " ")])
def test_missing_or_empty_candidate_labels_are_rejected(labels: tuple[str, ...] | None) -> None:
    with rejects("got none, or an empty one", "parameters.candidate_labels"):
        check_candidate_labels(SelectionParameters(candidate_labels=labels), "parameters")
