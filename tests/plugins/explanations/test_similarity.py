"""Similarity of predictions to the targets of an explanation, compared with values computed by hand."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.image_classification import Classification, ClassificationInput, ImageClassification
from tasks.image_segmentation import ImageSegmentation, Segments
from tasks.object_detection import DetectionInput, DetectionParameters, Detections, ObjectDetection
from tasks.oriented_object_detection import OrientedDetections, OrientedObjectDetection
from tasks.vision.contours import contour_ious, contours_of_mask
from tasks.vision.filtering import SelectionParameters, ious
from tasks.vision.image import Image
from tests.support.rejection import rejects

BLANK = Image(np.zeros((20, 30, 3), np.uint8))


def detections(*objects: tuple[str, float, tuple[float, float, float, float]]) -> Detections:
    boxes = np.array([box for _, _, box in objects], np.float32).reshape(-1, 4)
    return Detections(
        labels=[item[0] for item in objects], scores=np.array([item[1] for item in objects], np.float32), boxes=boxes
    )


def oriented(*objects: tuple[str, float, tuple[float, float, float, float, float]]) -> OrientedDetections:
    boxes = np.array([box for _, _, box in objects], np.float32).reshape(-1, 5)
    scores = np.array([item[1] for item in objects], np.float32)
    return OrientedDetections(labels=[item[0] for item in objects], scores=scores, boxes=boxes, width=100, height=100)


def test_ious_of_boxes() -> None:
    boxes = np.array([[0, 0, 10, 10], [5, 5, 5, 9]], np.float32)
    others = np.array([[0, 0, 10, 10], [5, 0, 15, 10], [20, 20, 30, 30]], np.float32)
    np.testing.assert_allclose(ious(boxes, others), [[1, 50 / 150, 0], [0, 0, 0]], rtol=1e-6)
    assert ious(boxes, np.empty((0, 4), np.float32)).shape == (2, 0)


@pytest.mark.slow
@given(st.integers(0, 40), st.integers(0, 40), st.sampled_from((1.0, 20.0)))
def test_ious_of_contours_equal_those_of_their_masks(x: int, y: int, size: float) -> None:
    first, second = np.zeros((100, 100), np.uint8), np.zeros((100, 100), np.uint8)
    cv2.circle(first, (40, 40), 25, 1, -1)
    cv2.circle(first, (40, 40), 9, 0, -1)
    cv2.rectangle(second, (20 + x, 20 + y), (50 + x, 45 + y), 1, -1)
    exact = np.logical_and(first, second).sum() / np.logical_or(first, second).sum()
    objects = [[contour * np.float32(size) for contour in contours_of_mask(mask)] for mask in (first, second)]
    # Shapes larger than the grid lose their edges to rounding.
    assert contour_ious([objects[0]], [objects[1]])[0, 0] == pytest.approx(exact, abs=1e-6 if size == 1 else 0.05)


def test_similarity_of_a_class_is_its_score() -> None:
    task = ImageClassification()
    targets = Classification(labels=["b"], scores=np.array([0.9], np.float32))
    prediction = Classification(labels=["a", "b"], scores=np.array([0.7, 0.3], np.float32))
    assert task.similarity(targets, prediction, 1.0).tolist() == pytest.approx([0.3])
    assert task.similarity(Classification(labels=["z"], scores=targets.scores), prediction, 1.0).tolist() == [0]


def test_target_is_the_best_answered_class_or_the_requested_one() -> None:
    task = ImageClassification()
    raw = Classification(labels=["a", "b", "c"], scores=np.array([0.1, 0.7, 0.2], np.float32))
    filtered = task.postprocess(ClassificationInput(BLANK, SelectionParameters(labels=("a", "c"))), raw)
    assert task.targets(raw, filtered, None, 10).labels == ["c"]
    assert task.targets(raw, filtered, "a", 10).labels == ["a"]
    empty = task.postprocess(ClassificationInput(BLANK, SelectionParameters(score_threshold=1)), raw)
    assert task.targets(raw, empty, None, 10).labels == []
    with rejects("no class 'dog'", "label"):
        task.targets(raw, filtered, "dog", 10)


def test_similarity_of_an_object_combines_overlap_class_and_score() -> None:
    targets = detections(("cat", 0.9, (0, 0, 10, 10)), ("dog", 0.8, (20, 20, 30, 30)))
    prediction = detections(
        ("cat", 0.5, (0, 0, 10, 10)),
        ("cat", 0.9, (5, 0, 15, 10)),
        ("cat", 0.9, (20, 20, 30, 30)),
        ("dog", 0.4, (20, 20, 30, 30)),
    )
    assert ObjectDetection().similarity(targets, prediction, 1.0).tolist() == pytest.approx([0.5, 0.4])
    assert ObjectDetection().similarity(targets, detections(), 1.0).tolist() == [0, 0]
    task = ObjectDetection()
    for label, count, scores in ((None, 2, [0.9, 0.8]), ("dog", 2, [0.8]), (None, 1, [0.9]), ("bird", 2, [])):
        assert task.targets(targets, targets, label, count).scores.tolist() == pytest.approx(scores)


def test_similarity_scales_targets_to_a_smaller_copy() -> None:
    targets = detections(("cat", 0.9, (0, 0, 40, 20)))
    assert ObjectDetection().similarity(targets, detections(("cat", 1.0, (0, 0, 10, 5))), 0.25).tolist() == [1]
    oriented_targets = oriented(("cat", 0.9, (40, 40, 20, 8, 0.7)))
    prediction = oriented(("cat", 0.5, (10, 10, 5, 2, 0.7)))
    similarity = OrientedObjectDetection().similarity(oriented_targets, prediction, 0.25)
    assert similarity.tolist() == pytest.approx([0.5], rel=1e-4)
    square = np.zeros((80, 80), np.uint8)
    square[20:60, 20:60] = 1
    halved = square[::2, ::2].copy()
    scores = np.ones(1, np.float32)
    large = Segments(labels=["x"], scores=scores, contours=[contours_of_mask(square)])
    small = Segments(labels=["x"], scores=scores, contours=[contours_of_mask(halved)])
    assert ImageSegmentation().similarity(large, small, 0.5)[0] > 0.9


def test_probe_lowers_the_threshold_and_drops_top_k() -> None:
    item = DetectionInput(BLANK, DetectionParameters(top_k=1, labels=("a", "cat"), iou_threshold=0.3, action="x"))
    other = Image(np.ones((5, 5, 3), np.uint8))
    probe = ObjectDetection().probe(item, other, detections(("cat", 0.8, (0, 0, 1, 1)), ("cat", 0.4, (0, 0, 1, 1))))
    assert probe.image is other
    parameters = probe.parameters
    assert (parameters.top_k, parameters.labels, parameters.action) == (None, ("cat",), None)
    assert parameters.iou_threshold == 0.3
    assert parameters.score_threshold == pytest.approx(0.04)
    classified = ClassificationInput(BLANK, SelectionParameters(score_threshold=0.9))
    target = Classification(labels=["b"], scores=np.array([0.9], np.float32))
    assert ImageClassification().probe(classified, other, target).parameters.score_threshold == 0
