"""Things to explain of which anyone can say where the reason lies."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.explanation.sampling import Subject
from tasks.image_classification import Classification, ClassificationInput, ImageClassification
from tasks.image_segmentation import ImageSegmentation, SegmentationInput, SegmentationParameters
from tasks.object_detection import DetectionInput, DetectionParameters, ObjectDetection
from tasks.oriented_object_detection import OrientedDetections, OrientedObjectDetection
from tasks.vision.image import Image
from tasks.vision.selection import SelectionParameters
from tests.support.stand_ins import bright, detect, detect_oriented, segment

Pixels = NDArray[np.uint8]
Region = tuple[slice, slice]


def found(task: Any, model: Callable[[Sequence[Any]], Sequence[Any]], item: Any) -> Subject[Any, Any]:
    """What `model` finds in an item, to be explained."""
    (prediction,) = model([item])
    targets = task.targets(prediction, task.refine(item, prediction), None, 10)
    return Subject(task=task, model=model, item=item, targets=targets)


def looking_at(pixels: Pixels, region: Region) -> Subject[Any, Any]:
    """A classifier that looks at one region alone: "there" scores the share of it that looks as in `pixels`."""

    def look(inputs: Sequence[ClassificationInput]) -> Sequence[Classification]:
        scores = [_alike(each.image.pixels, pixels, region) for each in inputs]
        return [Classification(labels=["there", "not"], scores=np.array([s, 1 - s], np.float32)) for s in scores]

    return found(ImageClassification(), look, ClassificationInput(Image(pixels), SelectionParameters()))


def _alike(seen: Pixels, pixels: Pixels, region: Region) -> float:
    away = np.abs(seen[region].astype(int) - pixels[region].astype(int)).max(axis=-1)
    return float((away < 24).mean())


def _detect_oriented(inputs: Sequence[DetectionInput]) -> Sequence[OrientedDetections]:
    """The stand-in cannot answer where nothing is bright."""
    return [
        detect_oriented([each])[0]
        if bright(each.image).any()
        else OrientedDetections(
            labels=[],
            scores=np.empty(0, np.float32),
            boxes=np.empty((0, 5), np.float32),
            width=each.image.width,
            height=each.image.height,
        )
        for each in inputs
    ]


def noise(width: int, height: int) -> Pixels:
    """A picture without a flat spot, of which to hide a part is always to change it."""
    pixels = np.random.default_rng(5).integers(0, 2, (height, width, 3), np.uint8) * np.uint8(255)
    return np.ascontiguousarray(pixels)


def objects(task_name: str, pixels: Pixels) -> Subject[Any, Any]:
    """What a stand-in finds: the bright part of a dark picture."""
    image = Image(pixels)
    match task_name:
        case "detector":
            return found(ObjectDetection(), detect, DetectionInput(image, DetectionParameters(score_threshold=0.5)))
        case "oriented":
            parameters = DetectionParameters(score_threshold=0.5)
            return found(OrientedObjectDetection(), _detect_oriented, DetectionInput(image, parameters))
        case _:
            parameters = SegmentationParameters(score_threshold=0.5)
            return found(ImageSegmentation(), segment, SegmentationInput(image, parameters))
