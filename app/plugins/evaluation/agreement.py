"""Compare the answers of two set-ups of one model, without labels."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.clients.protocol import Records
from app.plugins.evaluation.answers import PredictedObject, infer_task, parse_records
from app.plugins.evaluation.dataset import EvaluationError, Item
from tasks.vision.contours import mask_of_contours
from tasks.vision.filtering import ious

_MIN_IOU = 0.5
_RASTER = 512
"""Pixels of the longer side of the area in which outlines are compared."""


class AnswerAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """How close answers are to the reference. Figures of objects are None for other answers.

    Attributes:
        labels: share of images with the same labels, or the same text.
        matched: objects with a partner of the same label and an IoU of at least 0.5.
        mean_iou: of the partners; None without any.
        score_difference: the largest difference between the scores of partners, or of the best class.
    """

    labels: float
    matched: int | None = None
    mean_iou: float | None = None
    score_difference: float = 0.0


def compare_answers(
    items: Sequence[Item], expected: Mapping[str, Records], found: Mapping[str, Records]
) -> AnswerAgreement:
    """Compare the records of each item, by its id, with the reference.

    Raise EvaluationError when an evaluation cannot measure the answers, such as numbers that are not finite.
    """
    labels = float(np.mean([_labels(expected[item.id]) == _labels(found[item.id]) for item in items]))
    try:
        task = next((task for answer in expected.values() if (task := infer_task(answer)) is not None), None)
        if task is None or task.returns == "texts":
            return AnswerAgreement(labels=labels)
        parsed = [
            [parse_records(answers[item.id], item, task).predictions for answers in (expected, found)] for item in items
        ]
    except ValueError as error:
        raise EvaluationError(f"The answers cannot be compared: {error}") from None
    if task.returns == "classes":
        differences = [_best_difference(before, after) for before, after in parsed]
        return AnswerAgreement(labels=labels, score_difference=max(differences, default=0.0))
    pairs = [pair for before, after in parsed for pair in partners(before, after)]
    return AnswerAgreement(
        labels=labels,
        matched=len(pairs),
        mean_iou=float(np.mean([iou for iou, _, _ in pairs])) if pairs else None,
        score_difference=max((abs(other.score - one.score) for _, one, other in pairs), default=0.0),
    )


def _labels(records: Records) -> list[str]:
    """Return the label of the best class, the labels of all objects, or the text."""
    first: Mapping[str, object] = records[0] if records else {}
    if "answer" in first:
        return [str(record["answer"]) for record in records]
    if first.keys() == {"label", "score"}:
        return [str(first["label"])]
    return sorted(str(record["label"]) for record in records)


def _best_difference(before: Sequence[PredictedObject], after: Sequence[PredictedObject]) -> float:
    scores = {prediction.label: prediction.score for prediction in after}
    return max((abs(scores.get(best.label, 0.0) - best.score) for best in before[:1]), default=0.0)


def partners(
    before: Sequence[PredictedObject], after: Sequence[PredictedObject]
) -> Sequence[tuple[float, PredictedObject, PredictedObject]]:
    """Return the IoU of each pair, and its objects. The first of `before` choose first; nothing has two partners."""
    found: list[tuple[float, PredictedObject, PredictedObject]] = []
    free = list(after)
    for reference in before:
        overlaps = [(_iou(reference, other), other) for other in free if other.label == reference.label]
        best = max(overlaps, key=lambda overlap: overlap[0], default=None)
        if best is not None and best[0] >= _MIN_IOU:
            free.remove(best[1])
            found.append((best[0], reference, best[1]))
    return found


def _iou(first: PredictedObject, second: PredictedObject) -> float:
    if first.box is not None and second.box is not None:
        return float(ious(np.array([first.box], np.float32), np.array([second.box], np.float32))[0, 0])
    outlines = [_rings(first), _rings(second)]
    points = np.concatenate([point for rings in outlines for point in rings] or [np.zeros((1, 2), np.float32)])
    low, extent = points.min(axis=0), np.ptp(points, axis=0)
    scale = np.float32((_RASTER - 1) / max(float(extent.max()), 1e-6))
    before, after = (mask_of_contours([(ring - low) * scale for ring in rings], _RASTER, _RASTER) for rings in outlines)
    union = int(np.count_nonzero(before | after))
    return int(np.count_nonzero(before & after)) / union if union else 0.0


def _rings(prediction: PredictedObject) -> list[NDArray[np.float32]]:
    return [np.array(ring, np.float32) for ring in prediction.rings or () if ring]
