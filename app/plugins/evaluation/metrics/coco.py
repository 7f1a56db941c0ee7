"""Compare shapes of any kind, and compute COCO's average precision and recall with faster-coco-eval."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.plugins.evaluation.answers import EvaluatedItem
from app.plugins.evaluation.dataset import Box, Shape, import_optional
from app.plugins.evaluation.masks import predicted_mask, truth_mask
from tasks.task import TaskType

IOUS = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))
"""COCO's thresholds."""
_MAX_DETECTIONS = 100
"""COCO's limit for each class in an image."""


class ImageComparison(msgspec.Struct, frozen=True):
    """One image with its P predictions, and their (P, T) IoU with its objects.

    For an ignored object it is the share of the prediction inside the object, as COCO compares crowds.
    """

    result: EvaluatedItem
    overlaps: NDArray[np.float64]


class CocoMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """COCO's metrics of K classes with at least one object that is not ignored.

    `curves` is the (10, 101, K) precision by IoU threshold and by recall of 0, 0.01 ... 1, `recall` the (10, K) highest
    recall by IoU threshold.
    """

    labels: tuple[str, ...]
    curves: NDArray[np.float64]
    recall: NDArray[np.float64]

    def ap(self, iou: float | None = None) -> NDArray[np.float64]:
        """Return the (K,) average precision at one IoU threshold, or the mean over all of them."""
        curves = self.curves if iou is None else self.curves[[IOUS.index(iou)]]
        return curves.mean(axis=(0, 1))

    def map(self, iou: float | None = None) -> float | None:
        """Return the mean of `ap` over the classes; None without classes."""
        return float(self.ap(iou).mean()) if self.labels else None


def compare(result: EvaluatedItem, task: TaskType) -> ImageComparison:
    """Compare boxes, oriented boxes or masks, as `task` says."""
    item, predictions = result.item, result.predictions
    ignored = [labelled.ignored for labelled in item.objects]
    if not predictions or not ignored:
        return ImageComparison(result, np.zeros((len(predictions), len(ignored))))
    if task.geometry == "oriented":
        return ImageComparison(result, _polygon_overlaps(predictions, item.objects, ignored))
    if task.geometry == "contour":
        found = [predicted_mask(prediction, item.width, item.height) for prediction in predictions]
        true = [truth_mask(labelled, item.width, item.height) for labelled in item.objects]
    else:
        found, true = ([_left_top_width_height(one.box) for one in shapes] for shapes in (predictions, item.objects))
    return ImageComparison(result, import_optional("faster_coco_eval.core.mask").iou(found, true, ignored))


def coco_metrics(comparisons: Sequence[ImageComparison]) -> CocoMetrics:
    """Compute the metrics of images; of equal scores, an earlier image and an earlier prediction come first."""
    labels = tuple(
        sorted({truth.label for one in comparisons for truth in one.result.item.objects if not truth.ignored})
    )
    if not labels:
        return CocoMetrics(labels=(), curves=np.zeros((10, 101, 0)), recall=np.zeros((10, 0)))
    numbers = {label: number for number, label in enumerate(labels)}
    truths: list[dict[str, Any]] = []
    found: list[dict[str, Any]] = []
    for image, comparison in enumerate(comparisons):
        for truth in comparison.result.item.objects:
            if truth.label in numbers:
                truths.append(_annotation(truths, image, numbers[truth.label], iscrowd=int(truth.ignored)))
        for prediction in comparison.result.predictions:
            if prediction.label in numbers:
                found.append(_annotation(found, image, numbers[prediction.label], score=prediction.score))
    evaluation = _evaluation(comparisons, labels, truths, found)
    evaluation.evaluate()
    evaluation.accumulate()
    return CocoMetrics(
        labels=labels,
        # The axes of areas and of limits of detections have one element.
        curves=np.asarray(evaluation.eval["precision"])[..., 0, 0],
        recall=np.asarray(evaluation.eval["recall"])[..., 0, 0],
    )


def _annotation(annotations: Sequence[Any], image: int, category: int, **fields: Any) -> dict[str, Any]:
    # Areas only select sizes of objects, and all sizes count.
    return {"id": len(annotations) + 1, "image_id": image, "category_id": category, "area": 1.0, **fields}


def _evaluation(
    comparisons: Sequence[ImageComparison], labels: Sequence[str], truths: Sequence[Any], found: Sequence[Any]
) -> Any:
    library = import_optional("faster_coco_eval")

    class Evaluation(library.COCOeval_faster):
        """Take the overlaps from `comparisons`, so that oriented boxes can be compared too."""

        def computeIoU(self, imgId: int, catId: int) -> NDArray[np.float64]:  # noqa: N802, N803
            comparison, label = comparisons[imgId], labels[catId]
            predictions, objects = comparison.result.predictions, comparison.result.item.objects
            rows = [index for index, prediction in enumerate(predictions) if prediction.label == label]
            rows.sort(key=lambda index: -predictions[index].score)
            columns = [index for index, truth in enumerate(objects) if truth.label == label]
            return comparison.overlaps[np.ix_(rows[:_MAX_DETECTIONS], columns)]

    images = [{"id": image} for image in range(len(comparisons))]
    categories = [{"id": category, "name": label} for category, label in enumerate(labels)]
    truth_set, found_set = (
        library.COCO({"images": images, "categories": categories, "annotations": annotations})
        for annotations in (truths, found)
    )
    evaluation = Evaluation(truth_set, found_set, "bbox")
    evaluation.params.maxDets = [_MAX_DETECTIONS]
    evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0, 1e10]], ["all"]
    return evaluation


def _left_top_width_height(box: Box | None) -> list[float]:
    left, top, right, bottom = box or (0.0, 0.0, 0.0, 0.0)
    return [left, top, right - left, bottom - top]


def _polygon_overlaps(found: Sequence[Shape], true: Sequence[Shape], ignored: Sequence[bool]) -> NDArray[np.float64]:
    shapely = import_optional("shapely")

    def polygons(boxes: Sequence[Shape]) -> Any:
        shapes = [shapely.Polygon(box.rings[0] if box.rings else ()) for box in boxes]
        # Labelled corners may be in an order in which the outline crosses itself.
        return shapely.make_valid(shapes, method="structure", keep_collapsed=False)

    predictions, objects = polygons(found), polygons(true)
    areas: NDArray[np.float64] = shapely.area(predictions)[:, np.newaxis]
    intersections: NDArray[np.float64] = shapely.area(shapely.intersection(predictions[:, np.newaxis], objects))
    unions: NDArray[np.float64] = areas + shapely.area(objects) - intersections
    wholes = np.where(ignored, areas, unions)
    return np.divide(intersections, wholes, out=np.zeros_like(intersections), where=wholes > 0)
