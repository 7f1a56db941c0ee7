"""Fit a calibration on half of a dataset, and report it on the other half."""

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec
import numpy as np

from app.core.assembly.manifest import MANIFEST_FILE
from app.core.settings.command_options import command_options
from app.core.settings.model import ModelSource
from app.plugins.calibration.calibration import FILE_NAME, Calibration, FittedOn, model_digest, write_calibration
from app.plugins.calibration.evaluation.fit import MIN_SCORE, Events, check_count, events_of, fit, in_first_half
from app.plugins.calibration.settings import CalibrationOptions, CalibrationSettings
from app.plugins.evaluation.answers import EvaluatedItem
from app.plugins.evaluation.dataset import EvaluationError, fingerprint
from app.plugins.evaluation.metrics.bootstrap import DRAWS, draw_sums, estimate
from app.plugins.evaluation.metrics.intervals import Estimate
from app.plugins.evaluation.report import EvaluationReport, EvaluationRun
from app.report import Chart, Line, Table
from tasks.task import TaskType

BINS = 15
_WAY_ON = '"scores": "calibrated" in model-settings.json serves it.'


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The calibration of some events."""

    events: int
    ece: Estimate  # expected calibration error over `BINS` bins of equal width
    brier: Estimate  # mean squared error
    loss: float  # mean negative log-likelihood
    confidence: tuple[float, ...]  # mean confidence of each bin that has events
    frequency: tuple[float, ...]  # share of correct events in each of these bins


def measure(events: Events) -> Measured:
    """Measure at least one event. The intervals draw images, not events."""
    # Bins are (low, high], and the first one includes 0.
    bins = np.maximum(np.searchsorted(np.linspace(0, 1, BINS + 1), events.confidence) - 1, 0)
    numbers, images = np.unique(events.images, return_inverse=True)
    # By image: how far confidence exceeds correctness in each bin, the squared error, and the number of events.
    sums = np.zeros((len(numbers), BINS + 2))
    np.add.at(sums, (images, bins), events.confidence - events.correct)
    sums[:, BINS], sums[:, BINS + 1] = np.bincount(images, events.brier), np.bincount(images)
    drawn, total = draw_sums(sums), sums.sum(axis=0)
    eces, briers = np.abs(drawn[:, :BINS]).sum(axis=1) / drawn[:, -1], drawn[:, BINS] / drawn[:, -1]
    counts, confidence, correct = (
        np.bincount(bins, column, BINS) for column in (None, events.confidence, events.correct)
    )
    used = counts > 0
    return Measured(
        events=len(bins),
        ece=estimate(float(np.abs(total[:BINS]).sum() / len(bins)), eces),
        brier=estimate(float(events.brier.mean()), briers),
        loss=float(events.loss.mean()),
        confidence=tuple((confidence[used] / counts[used]).tolist()),
        frequency=tuple((correct[used] / counts[used]).tolist()),
    )


class CalibrationPart:
    """The part of a report that ``--calibrate`` adds."""

    file_name = FILE_NAME

    def is_wanted(self, source: ModelSource | None, /) -> bool:
        """Return whether the user asks for it.

        Raise EvaluationError when there is no model with raw scores in this process.
        """
        wanted = command_options(CalibrationOptions).calibrate
        if wanted and source is None:
            needed = "the files of the model: name it with --model, not --url or --recorded"
            raise EvaluationError(f"--calibrate needs {needed}")
        if wanted and source and source.settings.of(CalibrationSettings).scores == "calibrated":
            way_on = 'set "scores": "raw" for the evaluation'
            raise EvaluationError(f"--calibrate: {source.folder} answers calibrated scores: {way_on}")
        return wanted

    def extend(self, report: EvaluationReport, run: EvaluationRun, /) -> EvaluationReport:
        """Fit on half of the images, write calibration.json, and return the report with the figures of the other half.

        Raise EvaluationError as `fit`, for answers without scores, and for mapped labels. Raise ModelError when the
        files of the model cannot be hashed. Raise OSError when the file cannot be written.
        """
        source, dataset, task = run.source, run.dataset, report.task
        assert source is not None  # noqa: S101  checked by `is_wanted`
        if task.returns not in ("classes", "objects"):
            raise EvaluationError(f"--calibrate: answers of {task} have no scores")
        if run.is_mapped:
            raise EvaluationError("--calibrate: a calibration is by the model's labels: leave out --label-map")
        halves: tuple[list[EvaluatedItem], list[EvaluatedItem]] = [], []
        for result in run.results:
            halves[not in_first_half(result.item.image.read_bytes())].append(result)
        calibration = fit(halves[0], dataset.labels, task, model_digest(source))
        before, after = (events_of(halves[1], dataset.labels, task, used) for used in (None, calibration))
        check_count(len(before.confidence), "events")
        time = datetime.now(UTC).isoformat(timespec="seconds")
        fitted_on = FittedOn(dataset=fingerprint(dataset), images=len(halves[0]), time=time)
        path = write_calibration(source, msgspec.structs.replace(calibration, fitted_on=fitted_on))
        measured = {"before": measure(before), "after": measure(after)}
        notes = [_description(calibration, task, len(halves[0]), len(halves[1])), f"{path} was written; {_WAY_ON}"]
        if ((source.root or source.folder) / MANIFEST_FILE).is_file():
            notes.append(
                f"{MANIFEST_FILE} does not list {path.name} yet: run `charioteer manifest` on the folder again."
            )
        measures = msgspec.structs.replace(
            report.measures,
            tables=(*report.measures.tables, _table(measured)),
            charts=(*report.measures.charts, _chart(measured)),
        )
        return msgspec.structs.replace(report, measures=measures, notes=[*report.notes, *notes])


PARTS = (CalibrationPart(),)


def _description(calibration: Calibration, task: TaskType, fitted: int, held_out: int) -> str:
    if calibration.method == "temperature":
        how = f"temperature {calibration.temperature:.3g}"
    else:
        own = f"{len(calibration.classes)} classes with lines of their own" if calibration.classes else "one line"
        how = f"Platt's method on log odds, {own}"
    event = "the best class of an image" if task.returns == "classes" else f"an object with a score of {MIN_SCORE}"
    return (
        f"Calibration: {how}, fitted on {fitted} images, measured on {held_out} others. An event is {event}. "
        f"ECE has {BINS} bins of equal width; intervals are 95 % of {DRAWS} bootstrap draws of images."
    )


def _table(measured: Mapping[str, Measured]) -> Table:
    columns = ("scores", "events", "ECE", "ECE from", "ECE to", "Brier", "Brier from", "Brier to", "log loss")
    rows = tuple(
        (name, one.events, *msgspec.structs.astuple(one.ece), *msgspec.structs.astuple(one.brier), one.loss)
        for name, one in measured.items()
    )
    return Table(title="Calibration on held-out images", columns=columns, rows=rows)


def _chart(measured: Mapping[str, Measured]) -> Chart:
    lines = (Line(name=name, xs=one.confidence, ys=one.frequency) for name, one in measured.items())
    ideal = Line(name="ideal", xs=(0.0, 1.0), ys=(0.0, 1.0))
    return Chart(title="Reliability", x="stated probability", y="share that is right", lines=(*lines, ideal))
