"""``charioteer evaluate``."""

import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter
from cyclopts.types import ExistingFile, NormFloat, PositiveInt

from app import __version__
from app.clients.credentials import CredentialsError
from app.core.cli.interruption import exit_interrupted
from app.core.cli.model_options import given_options, takes_models
from app.core.cli.terminal import check_output, console, progress, reject_unused, stop
from app.core.settings.images import ImageSettings, image_limits
from app.core.settings.model import ModelError
from app.core.settings.server import ModelOptions, SettingsError
from app.plugins.evaluation.calibrating.notes import add_calibration, check_scores
from app.plugins.evaluation.checkpoint import CollectedAnswers, Header, collect_answers, open_checkpoint
from app.plugins.evaluation.dataset import Dataset, EvaluationError, fingerprint, import_optional
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
from app.report import html_report, print_report, to_json
from tasks.inference.error import InferenceError

_TOO_LOW = 1
_MAX_CURVE_THRESHOLD = 0.05
"""Above this score threshold, the report warns that average precision and recall are lower."""


_RARE = Parameter(show=False)


@takes_models
def evaluate(
    dataset: str | None = None,
    *,
    name: str | None = None,
    server: ServerOptions = ServerOptions(),  # noqa: B008
    recorded: str | None = None,
    reason: str = RANDOM_SAMPLE,
    data: DatasetOptions = DatasetOptions(),  # noqa: B008
    label_map: ExistingFile | None = None,
    slice: list[str] | None = None,  # noqa: A002
    confidence: NormFloat = 0.5,
    limit: PositiveInt | None = None,
    parameter: Annotated[list[str] | None, _RARE] = None,
    concurrency: Annotated[PositiveInt | None, _RARE] = None,
    out: Path | None = None,
    fresh: Annotated[bool, Parameter(negative="", show=False)] = False,
    json: Path | None = None,
    html: Path | None = None,
    fail_under: list[str] | None = None,
    calibrate: Annotated[bool, Parameter(negative="")] = False,
    options: ModelOptions = ModelOptions(),  # noqa: B008
    image_settings: Annotated[ImageSettings, _RARE] = ImageSettings(),  # noqa: B008
) -> None:
    """Measure a model on labelled data: in this process, through a server, or from recorded predictions.

    The documentation also lists rare options. Exits with 0 on success, and with 1 when a metric is below
    --fail-under. Exits with 2 when the evaluation cannot run, and with 130 when it was interrupted.

    Args:
        dataset: Folder or file: one folder of images for each class, COCO, YOLO or DOTA; or a
            source of `charioteer run` with labels. Without it, --recorded measures inferences by their truths.
        name: Which model, if there are several; with --url, the model name or Chariot id in the paths.
        server: The server of the model.
        recorded: Recording store, its export, or the results of `charioteer run`, instead of a model.
        reason: Without a data set: inferences of the random sample, of a rule by its name, or any.
        data: How to read the dataset.
        label_map: JSON object from model labels to dataset labels; null ignores a label.
        slice: Metadata key by whose values to split the metrics; may be repeated.
        confidence: Score threshold of metrics other than average precision.
        limit: Evaluate only this many images, the first ones.
        parameter: Extra parameter of every request, "name=value"; may be repeated.
        concurrency: Number of parallel requests; 1 for a local model, 4 with --url by default.
        out: Folder for predictions and reports. The same command resumes an interrupted evaluation from it.
        fresh: Discard the predictions in --out.
        json: Write the report to this file as JSON.
        html: Write the report to this file as a page.
        fail_under: Minimum value of a metric, "map_coco=0.5"; may be repeated.
        calibrate: Fit calibration.json of a local model on half of the images, and measure it on the others.
        options: Which models. --score-threshold is the score threshold of requests; 0.001 by default.
        image_settings: Limits on the images of a local model.
    """
    minima = _minima_from(fail_under or ())
    try:
        if server.url is not None and recorded is not None:
            raise EvaluationError("Name a URL or recordings, not both")
        server.check()
        if server.url is not None:
            given = given_options(options, image_settings, apart_from=("plugins", "score_threshold"))
            given |= {"--calibrate": calibrate}
            reject_unused("with --url, which names the server; leave it out", given)
        if recorded is not None:
            given = given_options(options, image_settings, apart_from=("plugins",))
            given |= {"--parameter": parameter, "--concurrency": concurrency, "--fresh": fresh}
            given |= {"--calibrate": calibrate}
            reject_unused("with --recorded, which runs no model; leave it out", given)
        elif out is None:
            reject_unused("without --out, the folder of the predictions", {"--fresh": fresh})
        if label_map is not None:
            reject_unused("with --label-map, because it is by the labels of the model", {"--calibrate": calibrate})
        check_output(json, html)
        if dataset is None:
            reject_unused("without a data set", {"--format": data.format, "--split": data.split, "--task": data.task})
            from app.plugins.evaluation.truths.evaluated import read_truths

            if recorded is None:
                expected = (
                    "Expected --dataset with labelled data, or --recorded with a store whose inferences have truths"
                )
                raise EvaluationError(expected)
            answers = read_truths(recorded, name, data.images, reason)
            all_items, added = answers.dataset, answers.figures
        else:
            answers, all_items, added = None, read_dataset(dataset, data), ()
        selected = _limited(all_items, limit)
        check_slices(selected, slice or ())
        if selected.tasks[0].returns != "texts":
            import_optional("valor_lite")
        check_figures(selected, minima, added)
        label_mapping = read_label_map(label_map, selected.labels) if label_map else None
        if recorded is not None:
            source = None
            if answers is not None:
                label, collected, notes = answers.source, answers.collected, ()
            else:
                from app.plugins.evaluation.recorded_answers import read_recorded

                label, collected, notes = read_recorded(selected, recorded, name)
        else:
            parameters = parameters_for(selected, options.score_threshold, parameter or ())
            if server.url is None:
                model = local_model(options, name, parameters, image_limits(image_settings))
            else:
                model = served_model(server, server.url, name, parameters)
            source = model.source if calibrate else None
            if source is not None:
                check_scores(source)
            # Use the fingerprint of the full dataset, so that an evaluation of the first images can be continued.
            run_header = Header(charioteer=__version__, dataset=fingerprint(all_items), source=model.identity)
            collected = _predict_items(
                selected, model, run_header, concurrency or (1 if server.url is None else 4), out, fresh=fresh
            )
            label, notes = model.label, _score_notes(parameters)
        with progress("Measuring", len(collected.records)) as bar:
            report = evaluate_records(
                selected,
                collected.records,
                collected.failures,
                label,
                confidence=confidence,
                slices=slice or (),
                label_map=label_mapping,
                notes=notes,
                progress=bar.show,
                figures=added,
            )
        if source is not None:
            results, _ = parse_answers(selected, collected.records, report.task)
            report = add_calibration(report, selected, results, source)
    except (CredentialsError, EvaluationError, InferenceError, ModelError, OSError, SettingsError) as error:
        stop(str(error))
    except KeyboardInterrupt:
        way_on = f"run the same command again to resume from {out}" if out else "use --out to make it resumable"
        exit_interrupted(f"interrupted; {way_on}")
    print_report(present(report, with_images=False), console(), max_figures=PRINTED_FIGURES)
    console().print("--html FILE writes all figures, classes and mistakes; --json FILE writes them for programs")
    try:
        _write(report, out, json, html)
    except OSError as error:
        stop(f"the report cannot be written: {error}")
    _check_minima(report, minima)


def _limited(dataset: Dataset, limit: int | None) -> Dataset:
    if limit is None or limit >= len(dataset.items):
        return dataset
    note = f"Only the first {limit} of {len(dataset.items)} were evaluated (--limit)."
    return msgspec.structs.replace(dataset, items=dataset.items[:limit], notes=(*dataset.notes, note))


def _predict_items(
    dataset: Dataset, model: EvaluatedModel, run_header: Header, concurrency: int, out: Path | None, *, fresh: bool
) -> CollectedAnswers:
    with (
        tempfile.TemporaryDirectory() as scratch,
        open_checkpoint((out or Path(scratch)) / "predictions.jsonl", run_header, fresh=fresh) as predictions,
        model.open_predictor() as predict,
        progress(f"Evaluating {model.label}", len(dataset.items)) as bar,
    ):
        client = check_task(dataset, predict)
        return collect_answers(dataset.items, client, predictions, concurrency=concurrency, progress=bar.show)


def _score_notes(parameters: Mapping[str, object]) -> list[str]:
    score_threshold = parameters.get("score_threshold")
    if not isinstance(score_threshold, int | float) or score_threshold <= _MAX_CURVE_THRESHOLD:
        return []
    return [f"Requests had a score threshold of {score_threshold:g}, which lowers average precision and recall."]


def _write(report: EvaluationReport, out: Path | None, json: Path | None, html: Path | None) -> None:
    if out:
        out.mkdir(parents=True, exist_ok=True)
    for path in filter(None, (json, out and out / "report.json")):
        path.write_bytes(to_json(values_of(report)))
    if pages := [path for path in (html, out and out / "report.html") if path]:
        content = html_report(present(report, with_images=True))
        for path in pages:
            path.write_bytes(content)


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
