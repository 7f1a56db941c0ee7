"""Measure detection, oriented detection and segmentation with valor-lite, as Chariot's evaluations do."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.evaluation.answers import Answered, Found
from app.evaluation.dataset import LabelledObject
from app.evaluation.extras import needed
from app.evaluation.objects_report import IOUS, SCORES, Precision, objects_measures, precision_of
from app.evaluation.report import Confusion, Measures, Mistake
from app.evaluation.shapes import area, found_area, share_inside
from app.evaluation.slices import NO_VALUE, Slice
from tasks.task import TaskType

__all__ = ("measure_objects",)

_MATCH = 0.5
"""Minimum IoU of a match, for the confusion, the mistakes and ignored objects."""
_EXAMPLES = 5


def measure_objects(
    answered: Sequence[Answered],
    task: TaskType,
    confidence: float,
    slices: Sequence[str] = (),
    progress: Callable[[int], None] = lambda _: None,
) -> Measures:
    """Measure predictions against the objects of their items.

    Args:
        answered: items and predictions with the dataset's labels.
        task: detection, oriented detection or segmentation.
        confidence: predictions with a lower score count in average precision only.
        slices: keys of metadata.
        progress: called with the number of compared items.

    Raises:
        EvaluationError: when the extra is not installed.
    """
    valor = needed("valor_lite.object_detection")
    loader = valor.Loader.in_memory(metadata_fields=[(_column(index), "string") for index in range(len(slices))])
    rows = dropped = 0
    for index, result in enumerate(answered):
        detection, left_out = _detection(valor, str(index), result, task)
        detection.metadata = {_column(i): result.item.metadata.get(key, NO_VALUE) for i, key in enumerate(slices)}
        (loader.add_bounding_boxes if task is TaskType.OBJECT_DETECTION else loader.add_polygons)([detection])
        rows += len(detection.groundtruths) + len(detection.predictions)
        dropped += left_out
        progress(index + 1)
    notes = [f"{dropped} findings inside ignored objects were left out"] if dropped else []
    if not rows:
        return Measures(
            figures=objects_measures(None, None, confidence, ()).figures,
            notes=("There is neither an object in the dataset nor a finding: nothing to measure.",),
        )
    evaluator = loader.finalize()
    scores = sorted({*SCORES, confidence})
    overall = precision_of(evaluator.compute_precision_recall(iou_thresholds=list(IOUS), score_thresholds=scores))
    field = needed("pyarrow.compute").field
    parts: list[tuple[Slice, Precision]] = []
    for index, key in enumerate(slices):
        for value in sorted({result.item.metadata.get(key, NO_VALUE) for result in answered}):
            count = sum(result.item.metadata.get(key, NO_VALUE) == value for result in answered)
            metrics = evaluator.compute_precision_recall(
                iou_thresholds=list(IOUS), score_thresholds=[0.0, confidence], datums=field(_column(index)) == value
            )
            parts.append((Slice(key=key, value=value, items=count), precision_of(metrics)))
    (confused,) = evaluator.compute_confusion_matrix_with_examples([_MATCH], [confidence])
    examples = evaluator.compute_examples([_MATCH], [confidence])
    return objects_measures(
        overall, _confusion(confused.value, answered), confidence, parts, _mistakes(examples, answered), notes
    )


def _column(index: int) -> str:
    # A metadata key could have the name of a valor-lite column.
    return f"slice_{index}"


def _detection(valor: Any, uid: str, answered: Answered, task: TaskType) -> tuple[Any, int]:
    """Return one image for valor-lite, and the number of skipped predictions."""
    truths = [(place, each) for place, each in enumerate(answered.item.objects) if not each.ignored]
    ignored = [each for each in answered.item.objects if each.ignored]
    found = [*enumerate(answered.found)]
    if ignored:
        kept = _kept([each for _, each in found], [each for _, each in truths], ignored, task)
        found = [each for each, keep in zip(found, kept, strict=True) if keep]
    if task is TaskType.OBJECT_DETECTION:
        groundtruths = [_box(valor, f"{uid}-t{place}", each.box, each.label, []) for place, each in truths]
        predictions = [_box(valor, f"{uid}-p{place}", each.box, each.label, [each.score]) for place, each in found]
    else:
        shape = _shape_class(valor)
        groundtruths = [shape(f"{uid}-t{place}", area(each, task), [each.label]) for place, each in truths]
        predictions = [shape(f"{uid}-p{place}", found_area(each), [each.label], [each.score]) for place, each in found]
    detection = valor.Detection(uid=uid, groundtruths=groundtruths, predictions=predictions)
    return detection, len(answered.found) - len(found)


def _box(valor: Any, uid: str, box: Any, label: str, scores: list[float]) -> Any:
    left, top, right, bottom = box
    return valor.BoundingBox(uid=uid, xmin=left, xmax=right, ymin=top, ymax=bottom, labels=[label], scores=scores)


def _shape_class(valor: Any) -> Any:
    """Return valor-lite's polygon class without its checks: multipart and empty geometries work in its IoU."""

    class Shape(valor.Polygon):
        def __post_init__(self) -> None:
            pass

    return Shape


def _kept(
    found: Sequence[Found], truths: Sequence[LabelledObject], ignored: Sequence[LabelledObject], task: TaskType
) -> list[bool]:
    """Return which predictions count: all except those inside an ignored object of their class without a match."""
    kept: list[bool] = []
    regions = [(truth.label, area(truth, task)) for truth in ignored]
    areas = [(truth.label, area(truth, task)) for truth in truths]
    for finding in found:
        covered = found_area(finding)
        inside = any(label == finding.label and share_inside(covered, region) >= _MATCH for label, region in regions)
        matched = any(label == finding.label and _iou(covered, truth) >= _MATCH for label, truth in areas)
        kept.append(not inside or matched)
    return kept


def _iou(one: Any, other: Any) -> float:
    shared = one.intersection(other).area
    whole = one.area + other.area - shared
    return shared / whole if whole > 0 else 0.0


def _confusion(value: Mapping[str, Any], answered: Sequence[Answered]) -> Confusion:
    matrix, missed, extra = (
        value[name] for name in ("confusion_matrix", "unmatched_ground_truths", "unmatched_predictions")
    )
    labels = tuple(sorted(matrix))
    cells = {(truth, found): matrix[truth][found] for truth in labels for found in labels}
    cells |= {(truth, ""): missed[truth] for truth in labels} | {("", found): extra[found] for found in labels}
    examples = {
        f"{truth} -> {found}": _images(cell["examples"], answered)
        for (truth, found), cell in cells.items()
        if cell["count"] and truth != found
    }
    return Confusion(
        labels=labels,
        counts=tuple(tuple(matrix[truth][found]["count"] for found in labels) for truth in labels),
        missed=tuple(missed[label]["count"] for label in labels),
        extra=tuple(extra[label]["count"] for label in labels),
        examples=examples,
    )


def _images(examples: Sequence[Mapping[str, str]], answered: Sequence[Answered]) -> tuple[str, ...]:
    names = dict.fromkeys(answered[int(example["datum_id"])].item.id for example in examples)
    return tuple(names)[:_EXAMPLES]


def _mistakes(examples: Sequence[Any], answered: Sequence[Answered]) -> tuple[Mistake, ...]:
    found: list[Mistake] = []
    for metric in examples:
        value = metric.value
        missed, wrong = (_places(value[name]) for name in ("false_negatives", "false_positives"))
        right = _places([pair[1] for pair in value["true_positives"]])
        if missed or wrong:
            found.append(
                Mistake(
                    answered=answered[int(value["datum_id"])],
                    badness=len(missed) + len(wrong) + 1 - 1 / (1 + len(missed)),
                    why=f"{len(missed)} missed, {len(wrong)} wrong, {len(right)} right",
                    missed=missed,
                    wrong=wrong,
                    right=right,
                )
            )
    return tuple(sorted(found, key=lambda mistake: -mistake.badness))


def _places(uids: Sequence[str]) -> tuple[int, ...]:
    return tuple(sorted(int(uid.rpartition("-")[2][1:]) for uid in uids))
