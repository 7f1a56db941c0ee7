"""The parameters `nms` and `agnostic`: suppression of duplicates in what any model returns."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.image_segmentation import ImageSegmentation, SegmentationInput, SegmentationParameters, Segments
from tasks.object_detection import DetectionInput, DetectionParameters, Detections, ObjectDetection
from tasks.oriented_object_detection import OrientedDetections, OrientedObjectDetection
from tasks.vision.contours import contours_of_mask
from tasks.vision.image import Image

IMAGE = Image(np.zeros((100, 200, 3), np.uint8))
LABELS = ["cat", "cat", "dog", "cat"]
"""The first three objects overlap, and the last one is elsewhere."""
SCORES = np.array([0.7, 0.8, 0.9, 0.6], np.float32)


def boxes() -> NDArray[np.float32]:
    return np.array([[10, 10, 50, 50], [12, 10, 50, 50], [10, 12, 50, 50], [90, 10, 130, 50]], np.float32)


def detected(**parameters: Any) -> list[float]:
    prediction = Detections(labels=LABELS, scores=SCORES, boxes=boxes())
    item = DetectionInput(IMAGE, DetectionParameters(**parameters))
    return scores_of(ObjectDetection().postprocess(item, prediction))


def oriented(**parameters: Any) -> list[float]:
    rotated = np.array([[(b[0] + b[2]) / 2, 30, b[2] - b[0], 15, 0.4] for b in boxes().tolist()], np.float32)
    prediction = OrientedDetections(labels=LABELS, scores=SCORES, boxes=rotated, width=200, height=100)
    item = DetectionInput(IMAGE, DetectionParameters(**parameters))
    return scores_of(OrientedObjectDetection().postprocess(item, prediction))


def segmented(**parameters: Any) -> list[float]:
    contours: list[Any] = []
    for left, top, right, bottom in boxes().astype(int).tolist():
        mask = np.zeros((100, 200), np.uint8)
        mask[top:bottom, left:right] = 1
        contours.append(contours_of_mask(mask))
    item = SegmentationInput(IMAGE, SegmentationParameters(**parameters))
    return scores_of(ImageSegmentation().postprocess(item, Segments(labels=LABELS, scores=SCORES, contours=contours)))


def scores_of(prediction: Any) -> list[float]:
    return [round(float(score), 3) for score in prediction.scores]


@pytest.mark.parametrize("postprocessed", [detected, oriented, segmented])
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
def test_nms_drops_the_worse_of_two_objects(
    postprocessed: Any, parameters: dict[str, Any], scores: list[float]
) -> None:
    assert postprocessed(**parameters) == scores


def test_nms_ignores_boxes_that_are_outside_the_image_or_not_finite() -> None:
    outside = [[300, 10, 340, 50], [np.nan, 10, 50, 50], [10, 10, 50, 50]]
    prediction = Detections(
        labels=["cat"] * 3, scores=np.array([0.9, 0.8, 0.7], np.float32), boxes=np.array(outside, np.float32)
    )
    item = DetectionInput(IMAGE, DetectionParameters(nms=True))
    assert scores_of(ObjectDetection().postprocess(item, prediction)) == [0.7]


def test_nms_keeps_boxes_with_their_own_keypoints() -> None:
    points = np.arange(8, dtype=np.float32).reshape(4, 1, 2)
    prediction = Detections(labels=LABELS, scores=SCORES, boxes=boxes(), keypoints=points)
    found = ObjectDetection().postprocess(DetectionInput(IMAGE, DetectionParameters(nms=True)), prediction)
    assert found.keypoints is not None
    assert found.keypoints.tolist() == points[[2, 1, 3]].tolist()


def test_nms_compares_only_the_best_oriented_boxes() -> None:
    count = 2500
    places = np.array([[100, 50, 4, 2, 0]], np.float32).repeat(count, axis=0)
    prediction = OrientedDetections(
        labels=[str(index) for index in range(count)],
        scores=np.linspace(0.1, 0.9, count, dtype=np.float32),
        boxes=places,
        width=200,
        height=100,
    )
    item = DetectionInput(IMAGE, DetectionParameters(nms=True, score_threshold=0.0))
    found = OrientedObjectDetection().postprocess(item, prediction)
    assert len(found.labels) == 2000
    assert found.labels[0] == str(count - 1)
