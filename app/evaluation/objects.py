"""Measure detection, oriented detection and segmentation with valor-lite, as Chariot's evaluations do."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.evaluation.answers import EvaluatedItem, PredictedObject
from app.evaluation.dataset import LabelledObject
from app.evaluation.extras import import_optional
from app.evaluation.objects_report import IOUS, SCORES, ObjectMetrics, build_measures, read_metrics
from app.evaluation.report import Confusion, Measures, Mistake
from app.evaluation.shapes import predicted_area, share_inside, truth_area
from app.evaluation.slices import NO_VALUE, Slice
from tasks.task import TaskType

__all__ = ("measure_objects",)

_MATCH = 0.5
"""Minimum IoU of a match, for the confusion, the mistakes and ignored objects."""
_EXAMPLES = 5


def measure_objects(
    results: Sequence[EvaluatedItem],
    task: TaskType,
    confidence: float,
    slices: Sequence[str] = (),
    progress: Callable[[int], None] = lambda _: None,
) -> Measures:
    """Measure predictions against the objects of their items.

    Args:
        results: items and predictions with the dataset's labels.
        task: detection, oriented detection or segmentation.
        confidence: predictions with a lower score count in average precision only.
        slices: keys of metadata.
        progress: called with the number of compared items.

    Raises:
        EvaluationError: when the extra is not installed.
    """
    valor = import_optional("valor_lite.object_detection")
    loader = valor.Loader.in_memory(metadata_fields=[(_column(index), "string") for index in range(len(slices))])
    rows = dropped = 0
    for index, result in enumerate(results):
        detection, left_out = _detection(valor, str(index), result, task)
        detection.metadata = {_column(i): result.item.metadata.get(key, NO_VALUE) for i, key in enumerate(slices)}
        (loader.add_bounding_boxes if task is TaskType.OBJECT_DETECTION else loader.add_polygons)([detection])
        rows += len(detection.groundtruths) + len(detection.predictions)
        dropped += left_out
        progress(index + 1)
    notes = [f"{dropped} findings inside ignored objects were left out"] if dropped else []
    if not rows:
        return Measures(
            figures=build_measures(None, None, confidence, ()).figures,
            notes=("There is neither an object in the dataset nor a prediction: nothing to measure.",),
        )
    evaluator = loader.finalize()
    scores = sorted({*SCORES, confidence})
    overall = read_metrics(evaluator.compute_precision_recall(iou_thresholds=list(IOUS), score_thresholds=scores))
    field = import_optional("pyarrow.compute").field
    slice_metrics: list[tuple[Slice, ObjectMetrics]] = []
    for index, key in enumerate(slices):
        for value in sorted({result.item.metadata.get(key, NO_VALUE) for result in results}):
            count = sum(result.item.metadata.get(key, NO_VALUE) == value for result in results)
            metrics = evaluator.compute_precision_recall(
                iou_thresholds=list(IOUS), score_thresholds=[0.0, confidence], datums=field(_column(index)) == value
            )
            slice_metrics.append((Slice(key=key, value=value, items=count), read_metrics(metrics)))
    (confused,) = evaluator.compute_confusion_matrix_with_examples([_MATCH], [confidence])
    examples = evaluator.compute_examples([_MATCH], [confidence])
    return build_measures(
        overall, _confusion(confused.value, results), confidence, slice_metrics, _mistakes(examples, results), notes
    )


def _column(index: int) -> str:
    # A metadata key could have the name of a valor-lite column.
    return f"slice_{index}"


def _detection(valor: Any, uid: str, result: EvaluatedItem, task: TaskType) -> tuple[Any, int]:
    """Return one image for valor-lite, and the number of skipped predictions."""
    truths = [(index, labelled) for index, labelled in enumerate(result.item.objects) if not labelled.ignored]
    ignored = [labelled for labelled in result.item.objects if labelled.ignored]
    counted = [*enumerate(result.predictions)]
    if ignored:
        are_counted = _counted_predictions(result.predictions, [truth for _, truth in truths], ignored, task)
        counted = [prediction for prediction, is_counted in zip(counted, are_counted, strict=True) if is_counted]
    if task is TaskType.OBJECT_DETECTION:
        groundtruths = [_box(valor, f"{uid}-t{index}", truth.box, truth.label, []) for index, truth in truths]
        predictions = [
            _box(valor, f"{uid}-p{index}", prediction.box, prediction.label, [prediction.score])
            for index, prediction in counted
        ]
    else:
        shape = _shape_class(valor)
        groundtruths = [shape(f"{uid}-t{index}", truth_area(truth, task), [truth.label]) for index, truth in truths]
        predictions = [
            shape(f"{uid}-p{index}", predicted_area(prediction), [prediction.label], [prediction.score])
            for index, prediction in counted
        ]
    detection = valor.Detection(uid=uid, groundtruths=groundtruths, predictions=predictions)
    return detection, len(result.predictions) - len(counted)


def _box(valor: Any, uid: str, box: Any, label: str, scores: list[float]) -> Any:
    left, top, right, bottom = box
    return valor.BoundingBox(uid=uid, xmin=left, xmax=right, ymin=top, ymax=bottom, labels=[label], scores=scores)


def _shape_class(valor: Any) -> Any:
    """Return valor-lite's polygon class without its checks: multipart and empty geometries work in its IoU."""

    class Shape(valor.Polygon):
        def __post_init__(self) -> None:
            pass

    return Shape


def _counted_predictions(
    predictions: Sequence[PredictedObject],
    truths: Sequence[LabelledObject],
    ignored: Sequence[LabelledObject],
    task: TaskType,
) -> list[bool]:
    """Return which predictions count: all except those inside an ignored object of their class without a match."""
    are_counted: list[bool] = []
    regions = [(truth.label, truth_area(truth, task)) for truth in ignored]
    areas = [(truth.label, truth_area(truth, task)) for truth in truths]
    for prediction in predictions:
        area = predicted_area(prediction)
        inside = any(label == prediction.label and share_inside(area, region) >= _MATCH for label, region in regions)
        matched = any(label == prediction.label and _iou(area, truth) >= _MATCH for label, truth in areas)
        are_counted.append(not inside or matched)
    return are_counted


def _iou(first: Any, second: Any) -> float:
    intersection = first.intersection(second).area
    union = first.area + second.area - intersection
    return intersection / union if union > 0 else 0.0


def _confusion(value: Mapping[str, Any], results: Sequence[EvaluatedItem]) -> Confusion:
    matrix, missed, extra = (
        value[name] for name in ("confusion_matrix", "unmatched_ground_truths", "unmatched_predictions")
    )
    labels = tuple(sorted(matrix))
    cells = {(truth, predicted): matrix[truth][predicted] for truth in labels for predicted in labels}
    cells |= {(label, ""): missed[label] for label in labels} | {("", label): extra[label] for label in labels}
    examples = {
        f"{truth} -> {predicted}": _images(cell["examples"], results)
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


def _images(examples: Sequence[Mapping[str, str]], results: Sequence[EvaluatedItem]) -> tuple[str, ...]:
    names = dict.fromkeys(results[int(example["datum_id"])].item.id for example in examples)
    return tuple(names)[:_EXAMPLES]


def _mistakes(examples: Sequence[Any], results: Sequence[EvaluatedItem]) -> tuple[Mistake, ...]:
    mistakes: list[Mistake] = []
    for metric in examples:
        value = metric.value
        missed, wrong = (_indexes(value[name]) for name in ("false_negatives", "false_positives"))
        right = _indexes([pair[1] for pair in value["true_positives"]])
        if missed or wrong:
            mistakes.append(
                Mistake(
                    result=results[int(value["datum_id"])],
                    badness=len(missed) + len(wrong) + 1 - 1 / (1 + len(missed)),
                    why=f"{len(missed)} missed, {len(wrong)} wrong, {len(right)} right",
                    missed=missed,
                    wrong=wrong,
                    right=right,
                )
            )
    return tuple(sorted(mistakes, key=lambda mistake: -mistake.badness))


def _indexes(uids: Sequence[str]) -> tuple[int, ...]:
    return tuple(sorted(int(uid.rpartition("-")[2][1:]) for uid in uids))
