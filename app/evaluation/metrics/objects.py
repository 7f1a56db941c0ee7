"""Measure detection, oriented detection and segmentation, as COCO does and as Chariot's evaluations do."""

from collections.abc import Callable, Sequence

import msgspec

from app.evaluation.answers import EvaluatedItem
from app.evaluation.metrics.coco import coco_metrics
from app.evaluation.metrics.objects_report import SCORES, ObjectMetrics, build_measures
from app.evaluation.metrics.overlaps import Comparison, compare
from app.evaluation.metrics.slices import slice_results
from app.evaluation.metrics.valor import (
    confusion_matrix,
    list_mistakes,
    load_comparisons,
    valor_metrics,
)
from app.evaluation.report import Measures
from tasks.task import TaskType

__all__ = ("measure_objects",)


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
    evaluator, skipped = load_comparisons(comparisons)
    if evaluator is None:
        return msgspec.structs.replace(
            build_measures(ObjectMetrics(labels=labels, coco=coco_metrics(())), confidence),
            notes=("There is neither an object in the dataset nor a prediction: nothing to measure.",),
        )
    overall = ObjectMetrics(
        labels=labels, coco=coco_metrics(comparisons), valor=valor_metrics(evaluator, sorted({*SCORES, confidence}))
    )
    measures = build_measures(overall, confidence, _slices(comparisons, labels, confidence, slices))
    return msgspec.structs.replace(
        measures,
        confusion=confusion_matrix(evaluator, comparisons, confidence),
        mistakes=list_mistakes(evaluator, comparisons, labels, confidence),
        notes=(f"{skipped} findings inside ignored objects were left out",) if skipped else (),
    )


def _slices(
    comparisons: Sequence[Comparison], labels: Sequence[str], confidence: float, keys: Sequence[str]
) -> list[tuple[str, int, ObjectMetrics]]:
    slices: list[tuple[str, int, ObjectMetrics]] = []
    for name, indexes in slice_results([comparison.result for comparison in comparisons], keys):
        members = [comparisons[index] for index in indexes]
        evaluator, _ = load_comparisons(members)
        valor = valor_metrics(evaluator, [confidence]) if evaluator else None
        slices.append((name, len(members), ObjectMetrics(labels=labels, coco=coco_metrics(members), valor=valor)))
    return slices
