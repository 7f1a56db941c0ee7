"""Compute what Chariot's evaluations show of detections, with valor-lite."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from app.plugins.evaluation.dataset import import_optional
from app.plugins.evaluation.metrics.coco import IOUS, ImageComparison
from app.plugins.evaluation.report import Confusion, Mistake

_MATCH = 0.5
"""Minimum IoU of a match, for the confusion, the mistakes and ignored objects."""
_EXAMPLES = 5


class ValorMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """valor-lite's evaluator, None if there is nothing to measure, its metrics, and the number of skipped predictions.

    `map` is Valor's ``mAPAveragedOverIOUs``, in which a label without true objects counts as 0; None without labels.
    `counts` are right, wrong and missed by label, IoU threshold and score threshold.
    """

    evaluator: Any
    skipped: int
    map: float | None = None
    counts: Mapping[tuple[str, float, float], tuple[int, int, int]] = {}

    def totals(self, labels: Collection[str], iou: float, score: float) -> tuple[int, int, int]:
        """Return the counts of right, wrong and missed over `labels`."""
        counts = [self.counts.get((label, iou, score), (0, 0, 0)) for label in labels]
        right, wrong, missed = (sum(label_counts[index] for label_counts in counts) for index in range(3))
        return right, wrong, missed


def valor_metrics(comparisons: Sequence[ImageComparison], scores: Sequence[float]) -> ValorMetrics:
    """Compute the metrics at COCO's IoU thresholds and at the score thresholds `scores`.

    Valor knows no ignored objects: predictions that half or more lies in an ignored object are skipped.
    """
    valor = import_optional("valor_lite.object_detection")
    loader = valor.Loader.in_memory()
    rows = skipped = 0
    for number, comparison in enumerate(comparisons):
        truths, predictions = comparison.result.item.objects, comparison.result.predictions
        columns = [index for index, truth in enumerate(truths) if not truth.ignored]
        counted = [index for index in range(len(predictions)) if _is_counted(comparison, index)]
        true = [_annotation(valor, index, truths[index].label) for index in columns]
        found = [_annotation(valor, index, predictions[index].label, predictions[index].score) for index in counted]
        detection = valor.Detection(uid=str(number), groundtruths=true, predictions=found)
        # No public method takes overlaps: `add_bitmasks` copies both masks of each pair, 600 MB for a thousand pairs of
        # 640 x 480 pixels, and no method knows both corners and masks. The rows of its cache are as internal as this.
        loader._add_data([detection], [comparison.overlaps[counted][:, columns]])
        rows += len(columns) + len(counted)
        skipped += len(predictions) - len(counted)
    if not rows:
        return ValorMetrics(evaluator=None, skipped=skipped)
    evaluator = loader.finalize()
    metrics = evaluator.compute_precision_recall(iou_thresholds=list(IOUS), score_thresholds=list(scores))
    by_name = {kind.value: values for kind, values in metrics.items()}
    return ValorMetrics(
        evaluator=evaluator,
        skipped=skipped,
        map=by_name["mAPAveragedOverIOUs"][0].value,
        counts={
            (metric.parameters["label"], metric.parameters["iou_threshold"], metric.parameters["score_threshold"]): (
                metric.value["tp"],
                metric.value["fp"],
                metric.value["fn"],
            )
            for metric in by_name["Counts"]
        },
    )


def confusion_matrix(evaluator: Any, comparisons: Sequence[ImageComparison], confidence: float) -> Confusion:
    """Compute which labels of objects were found as which."""
    (metric,) = evaluator.compute_confusion_matrix_with_examples([_MATCH], [confidence])
    matrix, missed, extra = (
        metric.value[name] for name in ("confusion_matrix", "unmatched_ground_truths", "unmatched_predictions")
    )
    labels = tuple(sorted(matrix))
    cells = {(truth, predicted): matrix[truth][predicted] for truth in labels for predicted in labels}
    cells |= {(label, ""): missed[label] for label in labels} | {("", label): extra[label] for label in labels}
    examples = {
        f"{truth} -> {predicted}": _images(cell["examples"], comparisons)
        for (truth, predicted), cell in cells.items()
        if cell["count"] and truth != predicted
    }
    return Confusion(
        labels=labels,
        counts=tuple(tuple(matrix[truth][predicted]["count"] for predicted in labels) for truth in labels),
        missed=tuple(missed[label]["count"] for label in labels),
        extra=tuple(extra[label]["count"] for label in labels),
        examples=examples,
    )


def list_mistakes(
    evaluator: Any, comparisons: Sequence[ImageComparison], labels: Collection[str], confidence: float
) -> tuple[Mistake, ...]:
    """Return the images with missed objects or wrong predictions of `labels`, the worst first."""
    mistakes: list[Mistake] = []
    for metric in evaluator.compute_examples([_MATCH], [confidence]):
        result = comparisons[int(metric.value["datum_id"])].result
        missed, found = (_indexes(metric.value[name]) for name in ("false_negatives", "false_positives"))
        right = _indexes([pair[1] for pair in metric.value["true_positives"]])
        wrong = tuple(index for index in found if result.predictions[index].label in labels)
        if missed or wrong:
            mistakes.append(
                Mistake(
                    result=result,
                    severity=len(missed) + len(wrong) + 1 - 1 / (1 + len(missed)),
                    description=f"{len(missed)} missed, {len(wrong)} wrong, {len(right)} right",
                    missed=missed,
                    wrong=wrong,
                    right=right,
                )
            )
    return tuple(sorted(mistakes, key=lambda mistake: -mistake.severity))


def _annotation(valor: Any, index: int, label: str, *scores: float) -> Any:
    # Its coordinates are not used, because the overlaps are given.
    return valor.BoundingBox(uid=str(index), xmin=0, xmax=0, ymin=0, ymax=0, labels=[label], scores=[*scores])


def _is_counted(comparison: ImageComparison, index: int) -> bool:
    """Return whether a prediction matches an object of its label, or lies in no ignored one."""
    label = comparison.result.predictions[index].label
    overlaps = zip(comparison.result.item.objects, comparison.overlaps[index], strict=True)
    return {truth.ignored for truth, overlap in overlaps if truth.label == label and overlap >= _MATCH} != {True}


def _images(examples: Sequence[Mapping[str, str]], comparisons: Sequence[ImageComparison]) -> tuple[str, ...]:
    names = dict.fromkeys(comparisons[int(example["datum_id"])].result.item.id for example in examples)
    return tuple(names)[:_EXAMPLES]


def _indexes(uids: Sequence[str]) -> tuple[int, ...]:
    return tuple(sorted(map(int, uids)))
