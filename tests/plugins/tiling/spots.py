"""Models that find the bright spots of a dark image exactly, and what else the tests of tiles share."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.engine.models.servable import Servable
from app.core.plugins import registry
from app.plugins.tiling.parameters import TilingSettings
from app.plugins.tiling.step import TilingStep
from tasks.image_classification import ImageClassification
from tasks.image_segmentation import ImageSegmentation, Segments
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResult
from tasks.inference.tensor import Datatype, Tensor
from tasks.object_detection import Detections, ObjectDetection
from tasks.oriented_object_detection import OrientedDetections, OrientedObjectDetection
from tasks.task import Task
from tasks.vision.contours import contours_of_mask
from tests.support.models.fake_models import classify, stand_in_metadata

_ = registry().parameters
"""The parameters of plugins, which reading the settings of a model adds elsewhere."""

Find = Callable[[Sequence[Any]], Sequence[Any]]
SIDE = 200
"""Pixels: the input of the models."""


def _masks(pixels: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
    find: Any = cv2.connectedComponents
    count, numbers = find((pixels.max(axis=2) > 127).astype(np.uint8))
    return [(numbers == number).astype(np.uint8) for number in range(1, count)]


def _boxes(masks: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
    rectangles = [(x, y, x + w, y + h) for x, y, w, h in map(cv2.boundingRect, masks)]
    return np.array(rectangles, np.float32).reshape(-1, 4)


def _scores(masks: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
    """Return higher scores for larger spots, so that no two are equal by accident."""
    return np.array([0.6 + 0.3 * mask.sum() / (mask.sum() + 5000) for mask in masks], np.float32)


def detect(inputs: Sequence[Any]) -> Sequence[Detections]:
    """Return the box of each spot, and its corners as two keypoints."""
    found: list[Detections] = []
    for masks in (_masks(item.image.pixels) for item in inputs):
        boxes = _boxes(masks)
        fields = {"boxes": boxes, "keypoints": boxes.reshape(-1, 2, 2)}
        found.append(Detections(labels=["spot"] * len(masks), scores=_scores(masks), **fields))
    return found


def detect_oriented(inputs: Sequence[Any]) -> Sequence[OrientedDetections]:
    """Return the smallest oriented box of each spot."""
    found: list[OrientedDetections] = []
    for item in inputs:
        masks = _masks(item.image.pixels)
        rectangles = [cv2.minAreaRect(cv2.findNonZero(mask)) for mask in masks]
        rows = [(cx, cy, w, h, np.radians(degrees)) for (cx, cy), (w, h), degrees in rectangles]
        fields: dict[str, Any] = {"boxes": np.array(rows, np.float32).reshape(-1, 5), "width": item.image.width}
        fields |= {"labels": ["spot"] * len(masks), "scores": _scores(masks), "height": item.image.height}
        found.append(OrientedDetections(**fields))
    return found


def segment(inputs: Sequence[Any]) -> Sequence[Segments]:
    found: list[Segments] = []
    for masks in (_masks(item.image.pixels) for item in inputs):
        contours = [contours_of_mask(mask) for mask in masks]
        found.append(Segments(labels=["spot"] * len(masks), scores=_scores(masks), contours=contours))
    return found


TASKS: Mapping[str, tuple[Task[Any, Any], Find]] = {
    "box": (ObjectDetection(keypoints=(2, 2)), detect),
    "oriented": (OrientedObjectDetection(), detect_oriented),
    "contour": (ImageSegmentation(), segment),
    "class": (ImageClassification(), classify),
}


def plain(kind: str, model: Find | None = None) -> Servable:
    task, own_model = TASKS[kind]
    return Servable(task, model or own_model, stand_in_metadata(task.task_type), {})


def tiled(kind: str, model: Find | None = None, chunk: int = 1, *, pixels: float | None = None, **own: Any) -> Servable:
    """Return a servable that cuts images into tiles if a request asks for it, or by its `own` settings."""
    settings = msgspec.convert({"size": False, **own}, TilingSettings)
    servable = plain(kind, model)
    servable.split_step = TilingStep("detector", servable.task.task_type, settings, (SIDE, SIDE), chunk, pixels)
    return servable


def request(*images: NDArray[np.uint8], **parameters: object) -> InferenceRequest:
    """Return a request with one input for each image, all with the same parameters."""
    inputs = tuple(
        Tensor(name=f"i{index}", datatype=Datatype.UINT8, data=image, parameters=parameters)
        for index, image in enumerate(images)
    )
    return InferenceRequest(id="1", model_name="m", inputs=inputs)


def answer(servable: Servable, *images: NDArray[np.uint8], **parameters: object) -> InferenceResult:
    """Return the result for images with parameters."""
    return servable.predict(request(*images, **parameters), Limits())


def canvas(width: int = 700, height: int = 500) -> NDArray[np.uint8]:
    """Return a black image."""
    return np.zeros((height, width, 3), np.uint8)
