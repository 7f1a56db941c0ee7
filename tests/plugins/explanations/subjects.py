"""Subjects of explanations whose true saliency is known."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.plugins.explanations.pixels import ExplanationTarget
from tasks.image_classification import Classification, ClassificationInput, ImageClassification
from tasks.image_segmentation import ImageSegmentation, SegmentationInput, SegmentationParameters
from tasks.object_detection import DetectionInput, DetectionParameters, ObjectDetection
from tasks.oriented_object_detection import OrientedDetections, OrientedObjectDetection
from tasks.vision.filtering import SelectionParameters
from tasks.vision.image import Image
from tests.support.models.fake_models import bright_mask, detect, detect_oriented, segment

Pixels = NDArray[np.uint8]
Region = tuple[slice, slice]


def subject_of(task: Any, model: Callable[[Sequence[Any]], Sequence[Any]], item: Any) -> ExplanationTarget:
    """Return the subject that explains the predictions of `model` for an item."""
    (prediction,) = model([item])
    targets = task.targets(prediction, task.postprocess(item, prediction), None, 10)
    return ExplanationTarget(task=task, model=model, item=item, predictions=targets)


def classifier_of_region(pixels: Pixels, region: Region) -> ExplanationTarget:
    """Return a classifier of one region: "there" scores the share of the region that equals `pixels`."""

    def predict(inputs: Sequence[ClassificationInput]) -> Sequence[Classification]:
        scores = [_unchanged_share(item.image.pixels, pixels, region) for item in inputs]
        return [
            Classification(labels=["there", "not"], scores=np.array([score, 1 - score], np.float32)) for score in scores
        ]

    return subject_of(ImageClassification(), predict, ClassificationInput(Image(pixels), SelectionParameters()))


def _unchanged_share(other: Pixels, pixels: Pixels, region: Region) -> float:
    difference = np.abs(other[region].astype(int) - pixels[region].astype(int)).max(axis=-1)
    return float((difference < 24).mean())


def _detect_oriented(inputs: Sequence[DetectionInput]) -> Sequence[OrientedDetections]:
    """Predict nothing where no pixel is bright, because the fake model fails there."""
    scores, boxes = np.empty(0, np.float32), np.empty((0, 5), np.float32)
    none = OrientedDetections(labels=[], scores=scores, boxes=boxes, width=1, height=1)
    return [detect_oriented([item])[0] if bright_mask(item.image).any() else none for item in inputs]


def noise(width: int, height: int) -> Pixels:
    """Return random pixels, so that hiding any part changes the image."""
    pixels = np.random.default_rng(5).integers(0, 2, (height, width, 3), np.uint8) * np.uint8(255)
    return np.ascontiguousarray(pixels)


def objects(task_name: str, pixels: Pixels) -> ExplanationTarget:
    """Return the predictions of a fake model: the bright part of a dark image."""
    image = Image(pixels)
    item = DetectionInput(image, DetectionParameters(score_threshold=0.5))
    match task_name:
        case "detector":
            return subject_of(ObjectDetection(), detect, item)
        case "oriented":
            return subject_of(OrientedObjectDetection(), _detect_oriented, item)
        case _:
            parameters = SegmentationParameters(score_threshold=0.5)
            return subject_of(ImageSegmentation(), segment, SegmentationInput(image, parameters))
