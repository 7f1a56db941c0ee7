"""IMAGE_SEGMENTATION: detect objects and their contours."""

from collections.abc import Sequence
from typing import Annotated, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.inference.tensor import Datatype, Tensor, TensorSpec, stack_labelled, stack_text
from tasks.object_detection import OBJECT_OUTPUTS, PIXEL_DECIMALS, DetectionParameters, drop_duplicates
from tasks.saliency.probe import best_match, take
from tasks.task import Model, TaskType
from tasks.vision.contours import Contour, bounds_of, contour_ious, simplify
from tasks.vision.filtering import SCORE_DECIMALS, select
from tasks.vision.request import ImageItem, ImageTask


class SegmentationParameters(DetectionParameters, frozen=True, kw_only=True):
    """Parameters of segmentation.

    Attributes:
        epsilon: maximum distance in pixels of dropped contour points from the line between their neighbours; 0 keeps
            all points.
    """

    epsilon: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.0


class Point(msgspec.Struct, frozen=True):
    """The centre of a pixel in the upright original image, x to the right, y down."""

    x: float
    y: float


class SegmentedObject(msgspec.Struct, frozen=True):
    """One object. Its pixels are those inside an odd number of its contours (even-odd rule)."""

    label: str
    score: float
    contour: list[list[Point]]

    def rings(self, width: int, height: int) -> list[NDArray[np.float64]]:
        """Return the (N, 2) points of each contour in pixels, without empty contours."""
        del width, height
        return [np.array([[point.x, point.y] for point in points], np.float64) for points in self.contour if points]


class Segments(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The objects of one image: N class names, and their `scores` (N,) float32, 0..1.

    Attributes:
        contours: for each object its contours in pixels of the upright original image: each outer boundary, followed by
            its holes (`tasks.vision.contours`).
        pixel_scores: (N, height, width) probability of each class at each pixel of a `ScoredTile`, whose contours are
            empty; None for other images and models.
    """

    labels: Sequence[str]
    scores: NDArray[np.float32]
    contours: Sequence[Sequence[Contour]]
    pixel_scores: NDArray[np.float32] | None = None

    def records(self) -> list[SegmentedObject]:
        """Return one `SegmentedObject` for each object, in order."""
        scores = np.round(self.scores.astype(np.float64), SCORE_DECIMALS).tolist()
        return [
            SegmentedObject(label, score, [_points(contour) for contour in contours])
            for label, score, contours in zip(self.labels, scores, self.contours, strict=True)
        ]

    @classmethod
    def stack(cls, predictions: Sequence[Self], /) -> Sequence[Tensor]:
        """Return `num_detections` INT32 [N], `labels`, `contours` (JSON) BYTES [N, M] and `scores` FP32 [N, M]."""
        contours = [
            [msgspec.json.encode(record.contour).decode() for record in prediction.records()]
            for prediction in predictions
        ]
        return (*stack_labelled("num_detections", predictions), stack_text("contours", contours))


SegmentationInput = ImageItem[SegmentationParameters]
ImageSegmenter = Model[SegmentationInput, Segments]


class ImageSegmentation(ImageTask[SegmentationParameters, Segments]):
    """Return objects by descending score. Objects with an empty mask have no contour and are left out."""

    task_type = TaskType.IMAGE_SEGMENTATION
    parameters_type = SegmentationParameters
    outputs = (*OBJECT_OUTPUTS, TensorSpec(name="contours", datatype=Datatype.BYTES, shape=(-1, -1)))

    def postprocess(self, item: SegmentationInput, prediction: Segments, /) -> Segments:
        scores = prediction.scores.astype(np.float32)
        for index, contours in enumerate(prediction.contours):
            if len(contours) == 0 or not all(np.isfinite(contour).all() for contour in contours):
                scores[index] = np.nan
        if item.parameters.nms:
            scores = drop_duplicates(bounds_of(prediction.contours), scores, prediction.labels, item)
        taken = take(prediction, select(scores, prediction.labels, item.parameters))
        contours = [simplify(contours, item.parameters.epsilon) for contours in taken.contours]
        return msgspec.structs.replace(taken, contours=contours)

    def similarity(self, targets: Segments, detected: Segments, scale: float, /) -> NDArray[np.float32]:
        scaled = [[contour * np.float32(scale) for contour in contours] for contours in targets.contours]
        return best_match(targets, detected, contour_ious(scaled, detected.contours))


def _points(contour: Contour) -> list[Point]:
    return [Point(x, y) for x, y in np.round(contour.astype(np.float64), PIXEL_DECIMALS).tolist()]
