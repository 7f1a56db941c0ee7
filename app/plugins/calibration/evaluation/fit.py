"""Fit the calibration of a model on labelled answers."""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.plugins.calibration.calibration import Calibration, Line
from app.plugins.calibration.evaluation.events import (
    Events,
    ScoredOutcomes,
    class_events,
    class_outcomes,
    class_scores,
    object_outcomes,
    outcome_events,
)
from app.plugins.calibration.fitting import MIN_PROBABILITY, fit_platt, fit_temperature, log_odds
from app.plugins.evaluation.answers import EvaluatedItem
from app.plugins.evaluation.dataset import EvaluationError
from tasks.task import TaskType

_MIN_EVENTS = 20
_MIN_EVENTS_EACH = 100
"""Events of a class that are enough for a line of its own."""
_MAX_DISTANCE_FROM_ONE = 0.01
"""Scores whose sum is closer to 1 are one distribution; half precision rounds them."""


def fit(results: Sequence[EvaluatedItem], labels: Sequence[str], task: TaskType, model_files: str = "") -> Calibration:
    """Fit the calibration of a model.

    Args:
        results: images with all their predictions.
        labels: the labels of the dataset.
        task: of the predictions.
        model_files: `model_digest` of the model.

    Raises:
        EvaluationError: when there are too few events, or higher scores are not more often right.
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
        outcomes = class_outcomes(known)
    else:
        outcomes = object_outcomes(results, labels, task)
    return _fit_lines(outcomes, model_files)


def _fit_lines(outcomes: ScoredOutcomes, model_files: str) -> Calibration:
    check_count(min(int(outcomes.correct.sum()), int((~outcomes.correct).sum())), "right and as many wrong predictions")
    line = _fit_line(outcomes, np.ones(len(outcomes.correct), np.bool_))
    if line is None:
        raise EvaluationError("--calibrate: higher scores are not more often right: the scores have no information")
    classes: dict[str, Line] = {}
    names = np.array(outcomes.labels)
    for label in sorted(set(outcomes.labels)):
        chosen = names == label
        if _rarer(outcomes.correct[chosen]) and int(chosen.sum()) >= _MIN_EVENTS_EACH:
            own = _fit_line(outcomes, chosen)
            classes |= {} if own is None else {label: own}
    return Calibration(method="platt", line=line, classes=classes, model_digest=model_files)


def _fit_line(outcomes: ScoredOutcomes, chosen: NDArray[np.bool_]) -> Line | None:
    slope, intercept = fit_platt(log_odds(outcomes.scores[chosen]), outcomes.correct[chosen])
    return Line(slope=slope, intercept=intercept) if slope > 0 else None


def _rarer(correct: NDArray[np.bool_]) -> int:
    """Return how many predictions have the rarer outcome."""
    return min(int(correct.sum()), int((~correct).sum()))


def check_count(count: int, name: str) -> None:
    """Check that half of a dataset has enough events.

    Raises:
        EvaluationError: when it has not.
    """
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
    return outcome_events(object_outcomes(results, labels, task), calibration)


def in_first_half(image: bytes, salt: bytes = b"") -> bool:
    """Return whether an image belongs to the half for the fit. Another `salt` splits a dataset in another way."""
    return hashlib.sha256(salt + image).digest()[0] < 128
