"""Fit the calibration of a model on labelled answers, and the events whose scores should be probabilities.

An event is the best class of an image, or a returned object.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.plugins.calibration.calibration import Calibration, PlattLine
from app.plugins.calibration.fitting import MIN_PROBABILITY, Floats, fit_platt, fit_temperature, log_odds
from app.plugins.evaluation.answers import EvaluatedItem
from app.plugins.evaluation.dataset import EvaluationError
from app.plugins.evaluation.metrics.coco import compare
from tasks.task import TaskType

_MIN_EVENTS = 20
_MIN_EVENTS_EACH = 100
"""Events of a class that are enough for a line of its own."""
_MAX_DISTANCE_FROM_ONE = 0.01
"""Scores whose sum is closer to 1 are one distribution; half precision rounds them."""
MIN_SCORE = 0.05
"""Objects with a lower score are left out: there are many, and nearly all are wrong."""
_MIN_IOU = 0.5


class Events(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """N events."""

    confidence: Floats  # (N,) probability that the answer states
    correct: NDArray[np.bool_]  # (N,) whether the answer is right
    brier: Floats  # (N,) squared error; of a class, the sum over all classes


class ScoredOutcomes(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Scores that stand alone: the label and score of each, and whether its object or class is there."""

    labels: Sequence[str]
    scores: Floats
    correct: NDArray[np.bool_]


def fit(results: Sequence[EvaluatedItem], labels: Sequence[str], task: TaskType, model_files: str = "") -> Calibration:
    """Fit the calibration of a model.

    Raise EvaluationError when there are too few events, or higher scores are not more often right.

    Args:
        results: images with all their predictions.
        labels: the labels of the dataset.
        task: of the predictions.
        model_files: `model_digest` of the model.
    """
    if task.returns == "classes":
        known = [result for result in results if any(one.label == result.item.label for one in result.predictions)]
        check_count(len(known), "answered images whose class the model has")
        if _are_distributions(known):
            width = max(len(result.predictions) for result in known)
            logits, truth = np.full((len(known), width), -np.inf), np.zeros(len(known), np.intp)
            for row, result in enumerate(known):
                names, scores = class_scores(result)
                logits[row, : len(names)] = np.log(np.clip(scores, MIN_PROBABILITY, 1))
                truth[row] = names.index(result.item.label)
            temperature = fit_temperature(logits, truth)
            return Calibration(method="temperature", temperature=temperature, model_digest=model_files)
        # Scores that do not add up to 1: each class of each image is an outcome of its own.
        outcomes = _outcomes(
            [(one.label, one.score, one.label == result.item.label) for result in known for one in result.predictions]
        )
    else:
        outcomes = object_outcomes(results, labels, task)
    return _fit_lines(outcomes, model_files)


def _fit_lines(outcomes: ScoredOutcomes, model_files: str) -> Calibration:
    check_count(_rarer(outcomes.correct), "right and as many wrong predictions")
    line = _fit_line(outcomes, np.ones(len(outcomes.correct), np.bool_))
    if line is None:
        raise EvaluationError("--calibrate: higher scores are not more often right: the scores have no information")
    classes: dict[str, PlattLine] = {}
    names = np.array(outcomes.labels)
    for label in sorted(set(outcomes.labels)):
        chosen = names == label
        if _rarer(outcomes.correct[chosen]) and int(chosen.sum()) >= _MIN_EVENTS_EACH:
            own = _fit_line(outcomes, chosen)
            classes |= {} if own is None else {label: own}
    return Calibration(method="platt", line=line, classes=classes, model_digest=model_files)


def _fit_line(outcomes: ScoredOutcomes, chosen: NDArray[np.bool_]) -> PlattLine | None:
    slope, intercept = fit_platt(log_odds(outcomes.scores[chosen]), outcomes.correct[chosen])
    return PlattLine(slope=slope, intercept=intercept) if slope > 0 else None


def _rarer(correct: NDArray[np.bool_]) -> int:
    """Return how many predictions have the rarer outcome."""
    return min(int(correct.sum()), int((~correct).sum()))


def check_count(count: int, name: str) -> None:
    """Check that half of a dataset has enough events. Raise EvaluationError when it has not."""
    if count < _MIN_EVENTS:
        raise EvaluationError(
            f"--calibrate: Expected at least {_MIN_EVENTS} {name} in half of the dataset, got {count}"
        )


def _are_distributions(results: Sequence[EvaluatedItem]) -> bool:
    sums = np.array([class_scores(result)[1].sum() for result in results])
    return bool((np.abs(sums - 1) <= _MAX_DISTANCE_FROM_ONE).all())


def events_of(
    results: Sequence[EvaluatedItem], labels: Sequence[str], task: TaskType, calibration: Calibration | None
) -> Events:
    """Return the events of images, with the scores of the model, or the probabilities of a calibration."""
    if task.returns == "classes":
        return class_events(results, calibration)
    outcomes = object_outcomes(results, labels, task)
    confidence = outcomes.scores
    if calibration is not None:
        confidence = calibration.probabilities(outcomes.labels, confidence)
    return Events(confidence=confidence, correct=outcomes.correct, brier=(confidence - outcomes.correct) ** 2)


def in_first_half(image: bytes) -> bool:
    """Return whether an image belongs to the half for the fit."""
    return hashlib.sha256(image).digest()[0] < 128


def class_events(results: Sequence[EvaluatedItem], calibration: Calibration | None) -> Events:
    """Return an event for each image: its best class. Images without an answer are left out."""
    rows: list[tuple[float, bool, float]] = []
    for result in results:
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
        rows.append((float(scores[best]), bool(is_true[best]), brier))
    confidence, correct, brier = np.array(rows, np.float64).reshape(-1, 3).T
    return Events(confidence=confidence, correct=correct.astype(np.bool_), brier=brier)


def class_scores(result: EvaluatedItem) -> tuple[Sequence[str], Floats]:
    """Return labels and scores of an answer, in its order."""
    predictions = result.predictions
    return [one.label for one in predictions], np.array([one.score for one in predictions], np.float64)


def object_outcomes(results: Sequence[EvaluatedItem], labels: Sequence[str], task: TaskType) -> ScoredOutcomes:
    """Return each object with a score of at least `MIN_SCORE` and one of the dataset's `labels`.

    It is correct if it matches a free object of its class at an IoU of `_MIN_IOU`; the best scores choose first. What
    matches an ignored object only is left out.
    """
    known = frozenset(labels)
    rows: list[tuple[str, float, bool]] = []
    for result in results:
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
                if objects[truth].label == found.label and overlaps[number, truth] >= _MIN_IOU
            ]
            match = max(free.intersection(fitting), key=lambda truth: overlaps[number, truth], default=None)
            if match is None and any(objects[truth].ignored for truth in fitting):
                continue
            free.discard(-1 if match is None else match)
            rows.append((found.label, found.score, match is not None))
    return _outcomes(rows)


def _outcomes(rows: Sequence[tuple[str, float, bool]]) -> ScoredOutcomes:
    columns: Any = zip(*rows, strict=True) if rows else ((),) * 3
    labels, scores, correct = columns
    return ScoredOutcomes(labels=labels, scores=np.array(scores, np.float64), correct=np.array(correct, np.bool_))
