"""Fit the calibration of a model on half of a labelled dataset, and measure it on the other half.

An event is the best class of an image, or a returned object. Its score should be the probability that it is right.
"""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.assembly.manifest import MANIFEST_FILE
from app.core.settings.model import ModelSource
from app.plugins.calibration.calibration import Calibration, FittedOn, PlattLine, model_digest, write_calibration
from app.plugins.calibration.fitting import MIN_PROBABILITY, Floats, fit_platt, fit_temperature, log_odds
from app.plugins.calibration.settings import CalibrationSettings
from app.plugins.evaluation.answers import EvaluatedItem
from app.plugins.evaluation.dataset import Dataset, EvaluationError, fingerprint
from app.plugins.evaluation.metrics.coco import compare
from app.plugins.evaluation.report import EvaluationReport
from tasks.task import TaskType

BINS = 15
_MIN_EVENTS = 20
_MIN_EVENTS_EACH = 100
"""Events of a class that are enough for a line of its own."""
_MAX_DISTANCE_FROM_ONE = 0.01
"""Scores whose sum is closer to 1 are one distribution; half precision rounds them."""
_MIN_SCORE = 0.05
"""Objects with a lower score are left out: there are many, and nearly all are wrong."""
_MIN_IOU = 0.5

Outcome = tuple[str, float, bool]
"""A label, its score, and whether its object or class is there."""


def check_scores(source: ModelSource) -> None:
    """Raise EvaluationError if a model answers calibrated scores."""
    if source.settings.of(CalibrationSettings).scores == "calibrated":
        way_on = 'set "scores": "raw" for the evaluation'
        raise EvaluationError(f"--calibrate: {source.folder} answers calibrated scores: {way_on}")


def add_calibration(
    report: EvaluationReport, dataset: Dataset, results: Sequence[EvaluatedItem], source: ModelSource
) -> EvaluationReport:
    """Fit on half of the images, write calibration.json, and return the report with notes about the other half.

    Raise EvaluationError as `fit`, and for answers without scores. Raise ModelError when the files of the model cannot
    be hashed. Raise OSError when the file cannot be written.
    """
    task = report.task
    if task.returns not in ("classes", "objects"):
        raise EvaluationError(f"--calibrate: answers of {task} have no scores")
    halves: tuple[list[EvaluatedItem], list[EvaluatedItem]] = [], []
    for result in results:
        halves[not in_first_half(result.item.image.read_bytes())].append(result)
    calibration = fit(halves[0], dataset.labels, task, model_digest(source))
    before, after = (events_of(halves[1], dataset.labels, task, used) for used in (None, calibration))
    _check_count(len(before), "events")
    (error, brier), (new_error, new_brier) = measure(before), measure(after)
    time = datetime.now(UTC).isoformat(timespec="seconds")
    fitted_on = FittedOn(dataset=fingerprint(dataset), images=len(halves[0]), time=time)
    path = write_calibration(source, msgspec.structs.replace(calibration, fitted_on=fitted_on))
    notes = [
        _description(calibration, task, len(halves[0])),
        f"On {len(after)} events of {len(halves[1])} other images, the calibration error is {new_error:.4f} "
        f"({error:.4f} before), and the Brier score {new_brier:.4f} ({brier:.4f} before).",
        f'{path} was written; "scores": "calibrated" in model-settings.json serves it.',
    ]
    if ((source.root or source.folder) / MANIFEST_FILE).is_file():
        notes.append(f"{MANIFEST_FILE} does not list {path.name} yet: run `charioteer manifest` on the folder again.")
    return msgspec.structs.replace(report, notes=[*report.notes, *notes])


def _description(calibration: Calibration, task: TaskType, fitted: int) -> str:
    if calibration.method == "temperature":
        how = f"temperature {calibration.temperature:.3g}"
    else:
        own = f"{len(calibration.classes)} classes with lines of their own" if calibration.classes else "one line"
        how = f"Platt's method on log odds, {own}"
    event = "the best class of an image" if task.returns == "classes" else f"an object with a score of {_MIN_SCORE}"
    return f"Calibration: {how}, fitted on {fitted} images. An event is {event}."


def in_first_half(image: bytes) -> bool:
    """Return whether an image belongs to the half for the fit."""
    return hashlib.sha256(image).digest()[0] < 128


def fit(results: Sequence[EvaluatedItem], labels: Sequence[str], task: TaskType, model_files: str = "") -> Calibration:
    """Fit the calibration of a model.

    Raise EvaluationError when there are too few events, or higher scores are not more often right.

    Args:
        results: images with all their predictions.
        labels: the labels of the dataset.
        task: of the predictions.
        model_files: `model_digest` of the model.
    """
    if task.returns != "classes":
        return _fit_lines(object_outcomes(results, labels, task), model_files)
    known = [result for result in results if any(one.label == result.item.label for one in result.predictions)]
    _check_count(len(known), "answered images whose class the model has")
    if any(abs(_class_scores(result)[1].sum() - 1) > _MAX_DISTANCE_FROM_ONE for result in known):
        # Scores that do not add up to 1: each class of each image is an outcome of its own.
        return _fit_lines(
            [(one.label, one.score, one.label == result.item.label) for result in known for one in result.predictions],
            model_files,
        )
    width = max(len(result.predictions) for result in known)
    logits, truth = np.full((len(known), width), -np.inf), np.zeros(len(known), np.intp)
    for row, result in enumerate(known):
        names, scores = _class_scores(result)
        logits[row, : len(names)] = np.log(np.clip(scores, MIN_PROBABILITY, 1))
        truth[row] = names.index(result.item.label)
    return Calibration(method="temperature", temperature=fit_temperature(logits, truth), model_digest=model_files)


def _fit_lines(outcomes: Sequence[Outcome], model_files: str) -> Calibration:
    labels, scores, correct = _columns(outcomes)
    _check_count(_rarer(correct), "right and as many wrong predictions")

    def line_of(chosen: NDArray[np.bool_]) -> PlattLine | None:
        slope, intercept = fit_platt(log_odds(scores[chosen]), correct[chosen])
        return PlattLine(slope=slope, intercept=intercept) if slope > 0 else None

    line = line_of(np.ones(len(correct), np.bool_))
    if line is None:
        raise EvaluationError("--calibrate: higher scores are not more often right: the scores have no information")
    classes: dict[str, PlattLine] = {}
    for label in sorted(set(labels)):
        chosen = np.array(labels) == label
        enough = _rarer(correct[chosen]) and int(chosen.sum()) >= _MIN_EVENTS_EACH
        if enough and (own := line_of(chosen)):
            classes[label] = own
    return Calibration(method="platt", line=line, classes=classes, model_digest=model_files)


def _rarer(correct: NDArray[np.bool_]) -> int:
    """Return how many predictions have the rarer outcome."""
    return min(int(correct.sum()), int((~correct).sum()))


def _check_count(count: int, name: str) -> None:
    """Check that half of a dataset has enough events. Raise EvaluationError when it has not."""
    if count < _MIN_EVENTS:
        raise EvaluationError(
            f"--calibrate: Expected at least {_MIN_EVENTS} {name} in half of the dataset, got {count}"
        )


def events_of(
    results: Sequence[EvaluatedItem], labels: Sequence[str], task: TaskType, calibration: Calibration | None
) -> Floats:
    """Return (N, 3) of N events: the stated probability, 1 if the answer is right, and the squared error.

    Without a calibration, the scores of the model are the probabilities. The squared error of a class is the sum over
    all classes. Images without a class are left out.
    """
    if task.returns == "classes":
        events = [_class_event(result, calibration) for result in results if result.predictions]
        return np.array(events, np.float64).reshape(-1, 3)
    names, confidence, correct = _columns(object_outcomes(results, labels, task))
    if calibration is not None:
        confidence = calibration.probabilities(names, confidence)
    right = correct.astype(np.float64)
    return np.stack([confidence, right, (confidence - right) ** 2], axis=1)


def measure(events: Floats) -> tuple[float, float]:
    """Return the expected calibration error over `BINS` bins of equal width, and the Brier score, of some events."""
    confidence, correct, brier = (events[:, column] for column in range(3))
    # Bins are (low, high], and the first one includes 0.
    bins = np.maximum(np.searchsorted(np.linspace(0, 1, BINS + 1), confidence) - 1, 0)
    excess = np.bincount(bins, confidence - correct)
    return float(np.abs(excess).sum() / len(bins)), float(brier.mean())


def _class_event(result: EvaluatedItem, calibration: Calibration | None) -> tuple[float, float, float]:
    labels, scores = _class_scores(result)
    if calibration is not None:
        scores = calibration.probabilities(labels, scores)
    is_true = np.array([label == result.item.label for label in labels])
    best = int(scores.argmax())
    # A class that the model lacks has the probability 0.
    missed = 0.0 if is_true.any() else 1.0
    return float(scores[best]), float(is_true[best]), float(((scores - is_true) ** 2).sum()) + missed


def _class_scores(result: EvaluatedItem) -> tuple[Sequence[str], Floats]:
    """Return labels and scores of an answer, in its order."""
    predictions = result.predictions
    return [one.label for one in predictions], np.array([one.score for one in predictions], np.float64)


def object_outcomes(results: Sequence[EvaluatedItem], labels: Sequence[str], task: TaskType) -> Sequence[Outcome]:
    """Return each object with a score of at least `_MIN_SCORE` and one of the dataset's `labels`.

    It is correct if it matches a free object of its class at an IoU of `_MIN_IOU`; the best scores choose first. What
    matches an ignored object only is left out.
    """
    known = frozenset(labels)
    outcomes: list[Outcome] = []
    for result in results:
        overlaps, objects = compare(result, task).overlaps, result.item.objects
        free = {number for number, truth in enumerate(objects) if not truth.ignored}
        order = sorted(range(len(result.predictions)), key=lambda number: -result.predictions[number].score)
        for number in order:
            found = result.predictions[number]
            if found.score < _MIN_SCORE or found.label not in known:
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
            outcomes.append((found.label, found.score, match is not None))
    return outcomes


def _columns(outcomes: Sequence[Outcome]) -> tuple[Sequence[str], Floats, NDArray[np.bool_]]:
    columns: Any = zip(*outcomes, strict=True) if outcomes else ((),) * 3
    labels, scores, correct = columns
    return labels, np.array(scores, np.float64), np.array(correct, np.bool_)
