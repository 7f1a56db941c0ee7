"""``charioteer evaluate``."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter
from cyclopts.types import ExistingFile, NormFloat, PositiveInt

from app.clients.credentials import CredentialsError
from app.core.cli.interruption import exit_interrupted
from app.core.cli.model_options import given_options, takes_models
from app.core.cli.terminal import check_output, console, progress, reject_unused, stop
from app.core.engine.error_text import sentence_of
from app.core.settings.environment import RARE
from app.core.settings.images import ImageSettings, image_limits
from app.core.settings.model import ModelError
from app.core.settings.server import ModelOptions, SettingsError
from app.plugins.evaluation.calibrating import add_calibration, check_scores
from app.plugins.evaluation.collection import CollectedAnswers, collect_answers
from app.plugins.evaluation.dataset import Dataset, EvaluationError, import_optional
from app.plugins.evaluation.datasets.files import DatasetOptions
from app.plugins.evaluation.datasets.read import read_dataset
from app.plugins.evaluation.evaluation import (
    ANSWERED,
    check_figures,
    check_slices,
    check_task,
    evaluate_records,
    parse_answers,
    read_label_map,
)
from app.plugins.evaluation.model import EvaluatedModel, ServerOptions, local_model, parameters_for, served_model
from app.plugins.evaluation.presentation import PRINTED_FIGURES, present, values_of
from app.plugins.evaluation.report import EvaluationReport
from app.plugins.recording.inference_query import RANDOM_SAMPLE
from app.report import Figure, html_report, print_report, to_json
from tasks.inference.error import InferenceError

_TOO_LOW = 1
_MAX_CURVE_THRESHOLD = 0.05
"""Above this score threshold, the report warns that average precision and recall are lower."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """How to ask the model."""

    parameter: list[str] | None = None
    """Extra parameter of every request, "name=value"; may be repeated."""

    concurrency: PositiveInt | None = None
    """Number of parallel requests; 1 for a local model, 4 with --url by default."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What to measure, and where to write it."""

    label_map: ExistingFile | None = None
    """JSON object from model labels to dataset labels; null ignores a label."""

    slice: list[str] | None = None
    """Metadata key by whose values to split the metrics; may be repeated."""

    confidence: NormFloat = 0.5
    """Score threshold of metrics other than average precision."""

    limit: PositiveInt | None = None
    """Evaluate only this many images, the first ones."""

    json: Path | None = None
    """Write the report to this file as JSON."""

    html: Path | None = None
    """Write the report to this file as a page."""

    fail_under: list[str] | None = None
    """Minimum value of a metric, "map_coco=0.5"; may be repeated."""

    calibrate: Annotated[bool, Parameter(negative="")] = False
    """Fit calibration.json of a local model on half of the images, and measure it on the others."""


@takes_models
def evaluate(
    dataset: Path | None = None,
    *,
    name: str | None = None,
    server: ServerOptions = ServerOptions(),  # noqa: B008
    recorded: str | None = None,
    reason: str = RANDOM_SAMPLE,
    data: DatasetOptions = DatasetOptions(),  # noqa: B008
    requests: Annotated[RequestOptions, RARE] = RequestOptions(),
    wanted: ReportOptions = ReportOptions(),
    options: ModelOptions = ModelOptions(),  # noqa: B008
    image_settings: Annotated[ImageSettings, RARE] = ImageSettings(),  # noqa: B008
) -> None:
    """Measure a model on labelled data: in this process, through a server, or from recorded predictions.

    Exits with 0 on success, and with 1 when a metric is below --fail-under. Exits with 2 when the evaluation cannot
    run, and with 130 when it was interrupted.

    Args:
        dataset: Folder or file: one folder of images for each class, COCO or YOLO. Without it, --recorded measures
            inferences by their truths.
        name: Which model, if there are several; with --url, the model name or Chariot id in the paths.
        server: The server of the model.
        recorded: Recording store, its export, or the results of `charioteer run`, instead of a model.
        reason: Without a data set: inferences of the random sample, of a rule by its name, or any.
        data: How to read the dataset.
        requests: How to ask the model.
        wanted: What to measure.
        options: Which models. --score-threshold is the score threshold of requests; 0.001 by default.
        image_settings: Limits on the images of a local model.
    """
    minima = _minima_from(wanted.fail_under or ())
    try:
        server.check()
        calibrate = {"--calibrate": wanted.calibrate}
        if server.url is not None:
            if recorded is not None:
                raise EvaluationError("Name a URL or recordings, not both")
            given = given_options(options, image_settings, apart_from=("plugins", "score_threshold"))
            reject_unused("with --url, which names the server; leave it out", given | calibrate)
        if recorded is not None:
            given = given_options(options, image_settings, requests, apart_from=("plugins",))
            reject_unused("with --recorded, which runs no model; leave it out", given | calibrate)
        if wanted.label_map is not None:
            reject_unused("with --label-map, because it is by the labels of the model", calibrate)
        check_output(wanted.json, wanted.html)
        if dataset is None:
            reject_unused("without a data set", {"--format": data.format, "--split": data.split, "--task": data.task})
            if recorded is None:
                expected = "--dataset with labelled data, or --recorded with a store whose inferences have truths"
                raise EvaluationError(f"Expected {expected}")
            from app.plugins.evaluation.recorded_answers import read_truths

            labelled, collected, figures = read_truths(recorded, name, data.images, reason)
            report = _measure(_checked(labelled, wanted, minima, figures), collected, wanted, figures)
        elif recorded is not None:
            from app.plugins.evaluation.recorded_answers import read_recorded

            labelled = _checked(read_dataset(dataset, data), wanted, minima)
            report = _measure(labelled, read_recorded(labelled, recorded, name), wanted)
        else:
            labelled = _checked(read_dataset(dataset, data), wanted, minima)
            parameters = parameters_for(labelled, options.score_threshold, requests.parameter or ())
            if server.url is None:
                model = local_model(options, name, parameters, image_limits(image_settings))
            else:
                model = served_model(server, server.url, name, parameters)
            if wanted.calibrate and model.source is not None:
                check_scores(model.source)
            concurrency = requests.concurrency or (1 if server.url is None else 4)
            collected = _ask(labelled, model, parameters, concurrency)
            report = _measure(labelled, collected, wanted)
            if wanted.calibrate and model.source is not None:
                results, _ = parse_answers(labelled, collected.records, report.task)
                report = add_calibration(report, labelled, results, model.source)
    except (CredentialsError, EvaluationError, InferenceError, ModelError, OSError, SettingsError) as error:
        stop(str(error))
    except KeyboardInterrupt:
        exit_interrupted("interrupted; `charioteer run` can be continued, and --recorded measures its results")
    print_report(present(report, with_images=False), console(), max_figures=PRINTED_FIGURES)
    console().print("--html FILE writes all figures, classes and mistakes; --json FILE writes them for programs")
    try:
        if wanted.json:
            wanted.json.write_bytes(to_json(values_of(report)))
        if wanted.html:
            wanted.html.write_bytes(html_report(present(report, with_images=True)))
    except OSError as error:
        stop(f"the report cannot be written: {sentence_of(error)}")
    _check_minima(report, minima)


def _checked(
    dataset: Dataset, wanted: ReportOptions, minima: Mapping[str, float], figures: Sequence[Figure] = ()
) -> Dataset:
    """Return the part of a dataset to measure. Check before the first request that the options fit it."""
    if wanted.limit is not None and wanted.limit < len(dataset.items):
        note = f"Only the first {wanted.limit} of {len(dataset.items)} were evaluated (--limit)."
        items, notes = dataset.items[: wanted.limit], (*dataset.notes, note)
        dataset = msgspec.structs.replace(dataset, items=items, notes=notes)
    check_slices(dataset, wanted.slice or ())
    if dataset.tasks[0].returns != "texts":
        import_optional("valor_lite")
    check_figures(dataset, minima, figures)
    if wanted.label_map:
        read_label_map(wanted.label_map, dataset.labels)
    return dataset


def _ask(
    dataset: Dataset, model: EvaluatedModel, parameters: Mapping[str, object], concurrency: int
) -> CollectedAnswers:
    """Ask the model for all answers."""
    with model.open_predictor() as predict, progress(f"Evaluating {model.label}", len(dataset.items)) as bar:
        collected = collect_answers(dataset.items, check_task(dataset, predict), concurrency, bar.show)
    collected.source = model.label
    threshold = parameters.get("score_threshold")
    if isinstance(threshold, int | float) and threshold > _MAX_CURVE_THRESHOLD:
        lowers = "which lowers average precision and recall"
        collected.notes = [f"Requests had a score threshold of {threshold:g}, {lowers}."]
    return collected


def _measure(
    dataset: Dataset, collected: CollectedAnswers, wanted: ReportOptions, figures: tuple[Figure, ...] = ()
) -> EvaluationReport:
    with progress("Measuring", len(collected.records)) as bar:
        return evaluate_records(
            dataset,
            collected,
            confidence=wanted.confidence,
            slices=wanted.slice or (),
            label_map=read_label_map(wanted.label_map, dataset.labels) if wanted.label_map else None,
            progress=bar.show,
            figures=figures,
        )


def _check_minima(report: EvaluationReport, minima: Mapping[str, float]) -> None:
    values = {figure.name: figure.value for figure in report.measures.figures}
    values[ANSWERED] = report.measured / report.images
    failures = [
        f"{name} is {'missing' if value is None else f'{value:.4f}'}, below the minimum {minimum:g}"
        for name, minimum in minima.items()
        if (value := values.get(name)) is None or value < minimum
    ]
    if failures:
        stop("; ".join(failures), _TOO_LOW)


def _minima_from(requirements: Sequence[str]) -> Mapping[str, float]:
    minima: dict[str, float] = {}
    for requirement in requirements:
        name, _, value = requirement.partition("=")
        try:
            minimum = float(value)
        except ValueError:
            minimum = math.nan
        if not math.isfinite(minimum):
            stop(f'--fail-under: Expected "figure=value", such as "map_coco=0.5", got {requirement}')
        minima[name.strip()] = minimum
    return minima
