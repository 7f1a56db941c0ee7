"""ORIENTED_OBJECT_DETECTION: detect objects and their oriented boxes."""

from collections.abc import Sequence
from typing import Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.inference.tensor import Datatype, Tensor, TensorSpec, stack_labelled, stack_numbers
from tasks.object_detection import OBJECT_OUTPUTS, DetectionInput, DetectionParameters, drop_duplicates
from tasks.saliency.probe import best_match, take
from tasks.task import TaskType
from tasks.vision.filtering import SCORE_DECIMALS, rotated_ious, select
from tasks.vision.request import ImageTask

_FRACTION_DECIMALS = 8


class OrientedObject(msgspec.Struct, frozen=True):
    """One object: centre and size as fractions of image width (cx, w) and height (cy, h), r in radians clockwise.

    w and h are divided by the image's width and height regardless of the rotation: scale the box to pixels before
    rotating it.
    """

    label: str
    score: float
    cx: float
    cy: float
    w: float
    h: float
    r: float

    def rings(self, width: int, height: int) -> list[NDArray[np.float64]]:
        """Return one ring with the (4, 2) corners in pixels of an image of this size."""
        centre = np.array([self.cx * width, self.cy * height])
        along = np.array([np.cos(self.r), np.sin(self.r)]) * self.w * width / 2
        across = np.array([-np.sin(self.r), np.cos(self.r)]) * self.h * height / 2
        return [centre + np.array([-along - across, along - across, along + across, across - along])]


class OrientedDetections(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The objects of one image of `width` x `height` pixels: N class names, and their `scores` (N,) float32, 0..1.

    `boxes` are (N, 5) float32: centre x, centre y, width, height in pixels of the upright original image, and the
    rotation in radians, clockwise with y down.
    """

    labels: Sequence[str]
    scores: NDArray[np.float32]
    boxes: NDArray[np.float32]
    width: int
    height: int

    def records(self) -> list[OrientedObject]:
        """Return one `OrientedObject` for each box, in order."""
        scores = self.scores.astype(np.float64).round(SCORE_DECIMALS).tolist()
        boxes = np.round(self._fractions(), _FRACTION_DECIMALS).tolist()
        return [
            OrientedObject(label, score, *box) for label, score, box in zip(self.labels, scores, boxes, strict=True)
        ]

    @classmethod
    def stack(cls, predictions: Sequence[Self], /) -> Sequence[Tensor]:
        """Return `num_detections` INT32 [N], `labels` BYTES [N, M], `scores` FP32 [N, M], `boxes` FP32 [N, M, 5]."""
        boxes = stack_numbers("boxes", [prediction._fractions() for prediction in predictions])
        return (*stack_labelled("num_detections", predictions), boxes)

    def _fractions(self) -> NDArray[np.float64]:
        size = np.array([self.width, self.height, self.width, self.height, 1], np.float64)
        return self.boxes.astype(np.float64) / size


class OrientedObjectDetection(ImageTask[DetectionParameters, OrientedDetections]):
    """Return oriented boxes by descending score, not clipped. Boxes centred outside the image are left out."""

    task_type = TaskType.ORIENTED_OBJECT_DETECTION
    parameters_type = DetectionParameters
    outputs = (*OBJECT_OUTPUTS, TensorSpec(name="boxes", datatype=Datatype.FP32, shape=(-1, -1, 5)))

    def postprocess(self, item: DetectionInput, prediction: OrientedDetections, /) -> OrientedDetections:
        boxes, size = prediction.boxes, np.array([prediction.width, prediction.height], np.float32)
        inside = np.all((boxes[:, :2] >= 0) & (boxes[:, :2] <= size) & (boxes[:, 2:4] > 0), axis=1)
        valid = inside & np.isfinite(boxes).all(axis=1)
        scores = np.where(valid, prediction.scores, np.float32(np.nan))
        if item.parameters.nms:
            scores = drop_duplicates(boxes, scores, prediction.labels, item)
        return take(prediction, select(scores, prediction.labels, item.parameters))

    def similarity(
        self, targets: OrientedDetections, detected: OrientedDetections, scale: float, /
    ) -> NDArray[np.float32]:
        lengths = np.array([scale, scale, scale, scale, 1], np.float32)
        return best_match(targets, detected, rotated_ious(targets.boxes * lengths, detected.boxes))
