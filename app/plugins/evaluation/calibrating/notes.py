"""Fit a calibration on half of a dataset, and measure it on the other half."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import numpy as np

from app.core.assembly.manifest import MANIFEST_FILE
from app.core.settings.model import ModelSource
from app.plugins.calibration.calibration import Calibration, FittedOn, model_digest, write_calibration
from app.plugins.calibration.settings import CalibrationSettings
from app.plugins.evaluation.answers import EvaluatedItem
from app.plugins.evaluation.calibrating.fit import MIN_SCORE, Events, check_count, events_of, fit, in_first_half
from app.plugins.evaluation.dataset import Dataset, EvaluationError, fingerprint
from app.plugins.evaluation.report import EvaluationReport
from tasks.task import TaskType

BINS = 15


def measure(events: Events) -> tuple[float, float]:
    """Return the expected calibration error over `BINS` bins of equal width, and the Brier score, of some events."""
    # Bins are (low, high], and the first one includes 0.
    bins = np.maximum(np.searchsorted(np.linspace(0, 1, BINS + 1), events.confidence) - 1, 0)
    excess = np.bincount(bins, events.confidence - events.correct)
    return float(np.abs(excess).sum() / len(bins)), float(events.brier.mean())


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
    check_count(len(before.confidence), "events")
    time = datetime.now(UTC).isoformat(timespec="seconds")
    fitted_on = FittedOn(dataset=fingerprint(dataset), images=len(halves[0]), time=time)
    path = write_calibration(source, msgspec.structs.replace(calibration, fitted_on=fitted_on))
    notes = [
        _description(calibration, task, len(halves[0])),
        _figures(before, after, len(halves[1])),
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
    event = "the best class of an image" if task.returns == "classes" else f"an object with a score of {MIN_SCORE}"
    return f"Calibration: {how}, fitted on {fitted} images. An event is {event}."


def _figures(before: Events, after: Events, images: int) -> str:
    (error, brier), (new_error, new_brier) = measure(before), measure(after)
    return (
        f"On {len(after.confidence)} events of {images} other images, the calibration error is {new_error:.4f} "
        f"({error:.4f} before), and the Brier score {new_brier:.4f} ({brier:.4f} before)."
    )
