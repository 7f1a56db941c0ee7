"""Measure detection, oriented detection and segmentation, as COCO does and as Chariot's evaluations do."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from app.evaluation.answers import EvaluatedItem, slice_results
from app.evaluation.metrics.coco import coco_metrics
from app.evaluation.metrics.objects_report import SCORES, ObjectMetrics, build_measures
from app.evaluation.metrics.overlaps import Comparison, compare
from app.evaluation.metrics.valor import (
    confusion_matrix,
    list_mistakes,
    load_comparisons,
    valor_metrics,
)
from app.evaluation.report import Measures
from tasks.task import TaskType


def measure_objects(
    results: Sequence[EvaluatedItem],
    labels: Sequence[str],
    task: TaskType,
    confidence: float,
    slices: Sequence[str] = (),
    progress: Callable[[int], None] = lambda _: None,
) -> Measures:
    """Measure predictions against the objects of their items.

    Args:
        results: items and predictions.
        labels: the labels of the dataset; predictions of other labels count in Valor's figure only.
        task: detection, oriented detection or segmentation.
        confidence: predictions with a lower score count in average precision only.
        slices: keys of metadata.
        progress: called with the number of compared items.

    Raises:
        EvaluationError: when the extra is not installed.
    """
    comparisons: list[Comparison] = []
    for index, result in enumerate(results):
        comparisons.append(compare(result, task))
        progress(index + 1)
    overall, evaluator, skipped = _object_metrics(comparisons, labels, sorted({*SCORES, confidence}))
    if evaluator is None:
        return msgspec.structs.replace(
            build_measures(overall, confidence),
            notes=("There is neither an object in the dataset nor a prediction: nothing to measure.",),
        )
    slices_metrics = [
        (name, len(indexes), _object_metrics([comparisons[index] for index in indexes], labels, [confidence])[0])
        for name, indexes in slice_results(results, slices)
    ]
    measures = build_measures(overall, confidence, slices_metrics)
    return msgspec.structs.replace(
        measures,
        confusion=confusion_matrix(evaluator, comparisons, confidence),
        mistakes=list_mistakes(evaluator, comparisons, labels, confidence),
        notes=(f"{skipped} findings inside ignored objects were left out",) if skipped else (),
    )


def _object_metrics(
    comparisons: Sequence[Comparison], labels: Sequence[str], scores: Sequence[float]
) -> tuple[ObjectMetrics, Any, int]:
    """Return the metrics, and what `load_comparisons` returns."""
    evaluator, skipped = load_comparisons(comparisons)
    valor = valor_metrics(evaluator, scores) if evaluator else None
    return ObjectMetrics(labels=labels, coco=coco_metrics(comparisons), valor=valor), evaluator, skipped
