"""Compare the predictions of one image with its objects."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.evaluation.answers import EvaluatedItem
from app.evaluation.dataset import Box, Ring, import_optional
from app.evaluation.masks import predicted_mask, truth_mask
from tasks.task import TaskType


class Comparison(msgspec.Struct, frozen=True):
    """One image with its predictions, and their overlaps.

    Attributes:
        result: the image and its P predictions.
        overlaps: (P, T) IoU of predictions and objects. For an ignored object it is the share of the prediction inside
            the object, as COCO compares crowds.
    """

    result: EvaluatedItem
    overlaps: NDArray[np.float64]


def compare(result: EvaluatedItem, task: TaskType) -> Comparison:
    """Compare boxes, oriented boxes or masks, as `task` says."""
    item, predictions = result.item, result.predictions
    ignored = [labelled.ignored for labelled in item.objects]
    if not predictions or not ignored:
        return Comparison(result, np.zeros((len(predictions), len(ignored))))
    if task.geometry == "oriented":
        rings = [prediction.corners for prediction in predictions]
        return Comparison(result, _polygon_overlaps(rings, [truth.corners for truth in item.objects], ignored))
    if task.geometry == "contour":
        found = [predicted_mask(prediction, item.width, item.height) for prediction in predictions]
        true = [truth_mask(labelled, item.width, item.height) for labelled in item.objects]
    else:
        found = [_left_top_width_height(prediction.box) for prediction in predictions]
        true = [_left_top_width_height(labelled.box) for labelled in item.objects]
    return Comparison(result, import_optional("faster_coco_eval.core.mask").iou(found, true, ignored))


def _left_top_width_height(box: Box | None) -> list[float]:
    left, top, right, bottom = box or (0.0, 0.0, 0.0, 0.0)
    return [left, top, right - left, bottom - top]


def _polygon_overlaps(
    found: Sequence[Ring | None], true: Sequence[Ring | None], ignored: Sequence[bool]
) -> NDArray[np.float64]:
    shapely = import_optional("shapely")

    def polygons(rings: Sequence[Ring | None]) -> Any:
        shapes = [shapely.Polygon(ring or ()) for ring in rings]
        # Labelled corners may be in an order in which the outline crosses itself.
        return shapely.make_valid(shapes, method="structure", keep_collapsed=False)

    predictions, objects = polygons(found), polygons(true)
    areas: NDArray[np.float64] = shapely.area(predictions)[:, np.newaxis]
    intersections: NDArray[np.float64] = shapely.area(shapely.intersection(predictions[:, np.newaxis], objects))
    unions: NDArray[np.float64] = areas + shapely.area(objects) - intersections
    wholes = np.where(ignored, areas, unions)
    return np.divide(intersections, wholes, out=np.zeros_like(intersections), where=wholes > 0)
