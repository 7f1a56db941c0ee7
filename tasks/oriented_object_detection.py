"""ORIENTED_OBJECT_DETECTION: what is in the picture, and the turned box around each."""

from collections.abc import Mapping, Sequence
from typing import Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.stacking import counts, stacked_numbers, stacked_text
from tasks.exchange.tensor import Datatype, Tensor, TensorSpec
from tasks.explanation.probe import best_match, chosen_objects, probe_item
from tasks.object_detection import DetectionInput, DetectionParameters
from tasks.task import InputGroup, Model, TaskType
from tasks.vision.boxes import rotated_ious
from tasks.vision.image import Image
from tasks.vision.request import IMAGE_INPUT, image_groups
from tasks.vision.selection import SCORE_DECIMALS, select

__all__ = ("OrientedDetections", "OrientedObject", "OrientedObjectDetection", "OrientedObjectDetector")

_FRACTION_DECIMALS = 8


class OrientedObject(msgspec.Struct, frozen=True):
    """One object: centre and size as fractions of image width (cx, w) and height (cy, h), r in radians clockwise.

    w and h are divided by the image's width and height whatever the rotation, so the box has to be scaled back to
    pixels before it is rotated.
    """

    label: str
    score: float
    cx: float
    cy: float
    w: float
    h: float
    r: float


class OrientedDetections(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The objects of one image, kept in pixels until they are rendered.

    Attributes:
        labels: N class names.
        scores: (N,) float32, 0..1.
        boxes: (N, 5) float32: centre x, centre y, width, height in pixels of the upright original image, and the
            rotation in radians, clockwise as seen with y down.
        width: of the image, pixels.
        height: of the image, pixels.
    """

    labels: Sequence[str]
    scores: NDArray[np.float32]
    boxes: NDArray[np.float32]
    width: int
    height: int

    def records(self) -> list[OrientedObject]:
        """One `OrientedObject` for each box, in order."""
        scores = np.round(self.scores.astype(np.float64), SCORE_DECIMALS).tolist()
        boxes = np.round(self._fractions(), _FRACTION_DECIMALS).tolist()
        return [
            OrientedObject(label, score, *box) for label, score, box in zip(self.labels, scores, boxes, strict=True)
        ]

    @classmethod
    def stack(cls, predictions: Sequence[Self], /) -> Sequence[Tensor]:
        """`num_detections` INT32 [N], `labels` BYTES [N, M], `scores` FP32 [N, M], `boxes` FP32 [N, M, 5]."""
        return (
            counts("num_detections", [each.labels for each in predictions]),
            stacked_text("labels", [each.labels for each in predictions]),
            stacked_numbers("scores", [each.scores for each in predictions]),
            stacked_numbers("boxes", [each._fractions() for each in predictions]),
        )

    def _fractions(self) -> NDArray[np.float64]:
        size = np.array([self.width, self.height, self.width, self.height, 1], np.float64)
        return self.boxes.astype(np.float64) / size


OrientedObjectDetector = Model[DetectionInput, OrientedDetections]


class OrientedObjectDetection:
    """Turned boxes, best first. Clipping would bend them: one centred outside the image is left out instead."""

    task_type = TaskType.ORIENTED_OBJECT_DETECTION
    parameters_type = DetectionParameters
    inputs = (IMAGE_INPUT,)
    outputs = (
        TensorSpec(name="num_detections", datatype=Datatype.INT32, shape=(-1,)),
        TensorSpec(name="labels", datatype=Datatype.BYTES, shape=(-1, -1)),
        TensorSpec(name="scores", datatype=Datatype.FP32, shape=(-1, -1)),
        TensorSpec(name="boxes", datatype=Datatype.FP32, shape=(-1, -1, 5)),
    )

    def decode(
        self, request: InferenceRequest, defaults: Mapping[str, object], limits: Limits, /
    ) -> Sequence[InputGroup[DetectionInput]]:
        return image_groups(request, defaults, limits, DetectionParameters, DetectionInput)

    def refine(self, item: DetectionInput, prediction: OrientedDetections, /) -> OrientedDetections:
        boxes, size = prediction.boxes, np.array([prediction.width, prediction.height], np.float32)
        inside = np.all((boxes[:, :2] >= 0) & (boxes[:, :2] <= size) & (boxes[:, 2:4] > 0), axis=1)
        sound = inside & np.isfinite(boxes).all(axis=1)
        scores = np.where(sound, prediction.scores, np.float32(np.nan))
        chosen = select(scores, prediction.labels, item.parameters)
        return msgspec.structs.replace(
            prediction,
            labels=[prediction.labels[index] for index in chosen],
            scores=prediction.scores[chosen],
            boxes=boxes[chosen],
        )

    def targets(
        self, _: OrientedDetections, refined: OrientedDetections, label: str | None, most: int, /
    ) -> OrientedDetections:
        chosen = chosen_objects(refined, label, most)
        labels = [refined.labels[index] for index in chosen]
        return msgspec.structs.replace(
            refined, labels=labels, scores=refined.scores[chosen], boxes=refined.boxes[chosen]
        )

    def probe(self, item: DetectionInput, image: Image, targets: OrientedDetections, /) -> DetectionInput:
        return probe_item(item, image, targets, faint=True)

    def similarity(self, targets: OrientedDetections, seen: OrientedDetections, scale: float, /) -> NDArray[np.float32]:
        lengths = np.array([scale, scale, scale, scale, 1], np.float32)
        return best_match(targets, seen, rotated_ious(targets.boxes * lengths, seen.boxes))
