"""The events whose scores should be probabilities: the best class of an image, or a returned object."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.plugins.calibration.calibration import Calibration
from app.plugins.calibration.fitting import MIN_PROBABILITY, Floats
from app.plugins.evaluation.answers import EvaluatedItem
from app.plugins.evaluation.metrics.coco import compare
from tasks.task import TaskType

MIN_SCORE = 0.05
"""Objects with a lower score are left out: there are many, and nearly all are wrong."""
MIN_IOU = 0.5


class Events(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """N events.

    Attributes:
        images: (N,) index of the image.
        confidence: (N,) probability that the answer states.
        correct: (N,) whether the answer is right.
        brier: (N,) squared error; of a class, the sum over all classes.
        loss: (N,) negative logarithm of the probability of the truth.
    """

    images: NDArray[np.intp]
    confidence: Floats
    correct: NDArray[np.bool_]
    brier: Floats
    loss: Floats


class ScoredOutcomes(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Scores that stand alone: the label and score of each, and whether its object or class is there."""

    images: NDArray[np.intp]
    labels: Sequence[str]
    scores: Floats
    correct: NDArray[np.bool_]


def class_events(results: Sequence[EvaluatedItem], calibration: Calibration | None) -> Events:
    """Return an event for each image: its best class. Images without an answer are left out."""
    rows: list[tuple[int, float, bool, float, float]] = []
    for index, result in enumerate(results):
        if not result.predictions:
            continue
        labels, scores = class_scores(result)
        if calibration is not None:
            scores = calibration.probabilities(labels, scores)
        is_true = np.array([label == result.item.label for label in labels])
        best = int(scores.argmax())
        # A class that the model lacks has the probability 0.
        missed = 0.0 if is_true.any() else 1.0
        brier = float(((scores - is_true) ** 2).sum()) + missed
        likelihood = max(float(scores[is_true].max(initial=0.0)), MIN_PROBABILITY)
        rows.append((index, float(scores[best]), bool(is_true[best]), brier, -float(np.log(likelihood))))
    images, confidence, correct, briers, losses = zip(*rows, strict=True) if rows else ((),) * 5
    return Events(
        images=np.array(images, np.intp),
        confidence=np.array(confidence, np.float64),
        correct=np.array(correct, np.bool_),
        brier=np.array(briers, np.float64),
        loss=np.array(losses, np.float64),
    )


def outcome_events(outcomes: ScoredOutcomes, calibration: Calibration | None) -> Events:
    """Return an event for each object."""
    confidence = outcomes.scores
    if calibration is not None:
        confidence = calibration.probabilities(outcomes.labels, confidence)
    limited = np.clip(confidence, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
    return Events(
        images=outcomes.images,
        confidence=confidence,
        correct=outcomes.correct,
        brier=(confidence - outcomes.correct) ** 2,
        loss=-np.log(np.where(outcomes.correct, limited, 1 - limited)),
    )


def class_scores(result: EvaluatedItem) -> tuple[Sequence[str], Floats]:
    """Return labels and scores of an answer, in its order."""
    predictions = result.predictions
    return [one.label for one in predictions], np.array([one.score for one in predictions], np.float64)


def class_outcomes(results: Sequence[EvaluatedItem]) -> ScoredOutcomes:
    """Return each class of each image as an outcome of its own, for scores that do not add up to 1."""
    rows = [
        (index, one.label, one.score, one.label == result.item.label)
        for index, result in enumerate(results)
        for one in result.predictions
    ]
    return _outcomes(rows)


def object_outcomes(results: Sequence[EvaluatedItem], labels: Sequence[str], task: TaskType) -> ScoredOutcomes:
    """Return each object with a score of at least `MIN_SCORE` and one of the dataset's `labels`.

    It is correct if it matches a free object of its class at an IoU of `MIN_IOU`; the best scores choose first. What
    matches an ignored object only is left out.
    """
    known = frozenset(labels)
    rows: list[tuple[int, str, float, bool]] = []
    for index, result in enumerate(results):
        overlaps, objects = compare(result, task).overlaps, result.item.objects
        free = {number for number, truth in enumerate(objects) if not truth.ignored}
        order = sorted(range(len(result.predictions)), key=lambda number: -result.predictions[number].score)
        for number in order:
            found = result.predictions[number]
            if found.score < MIN_SCORE or found.label not in known:
                continue
            fitting = [
                truth
                for truth in range(len(objects))
                if objects[truth].label == found.label and overlaps[number, truth] >= MIN_IOU
            ]
            match = max(free.intersection(fitting), key=lambda truth: overlaps[number, truth], default=None)
            if match is None and any(objects[truth].ignored for truth in fitting):
                continue
            free.discard(-1 if match is None else match)
            rows.append((index, found.label, found.score, match is not None))
    return _outcomes(rows)


def _outcomes(rows: Sequence[tuple[int, str, float, bool]]) -> ScoredOutcomes:
    columns: Any = zip(*rows, strict=True) if rows else ((), (), (), ())
    images, labels, scores, correct = columns
    return ScoredOutcomes(
        images=np.array(images, np.intp),
        labels=labels,
        scores=np.array(scores, np.float64),
        correct=np.array(correct, np.bool_),
    )
