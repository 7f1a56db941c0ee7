"""``charioteer evaluate``."""

import math
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import msgspec
from cyclopts import Parameter
from cyclopts.types import ExistingFile, NonNegativeInt, PositiveFloat, PositiveInt
from cyclopts.validators import Number
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from app import __version__
from app.cli.evaluation_source import Source, here, parameters_for, server
from app.cli.terminal import console
from app.conformance.gate import GateError, gate_headers
from app.conformance.trust import Trust, TrustError
from app.evaluation.collecting import Collected, collect
from app.evaluation.dataset import Dataset, fingerprint
from app.evaluation.datasets.reading import DatasetFormat, DatasetOptions, read_dataset
from app.evaluation.evaluation import ANSWERED, check_figures, check_slices, checked, evaluated
from app.evaluation.extras import EvaluationError, needed
from app.evaluation.journal import Header, journal
from app.evaluation.label_map import read_label_map
from app.evaluation.output.html import html_report
from app.evaluation.output.plain import json_report
from app.evaluation.output.table import print_report
from app.evaluation.report import Report
from app.settings.model import ModelError
from app.settings.server import ModelOptions, SettingsError
from tasks.exchange.error import InferenceError
from tasks.task import TaskType

__all__ = ("evaluate",)

_TOO_LOW, _IMPOSSIBLE, _INTERRUPTED = 1, 2, 130
_Task = Literal[
    "IMAGE_CLASSIFICATION", "OBJECT_DETECTION", "ORIENTED_OBJECT_DETECTION", "IMAGE_SEGMENTATION", "IMAGE_TEXT_TO_TEXT"
]
_Fraction = Annotated[float, Parameter(validator=Number(gte=0, lte=1))]
_LOWEST_SCORE = 0.001
"""Of findings that are asked for: average precision wants nearly all of them."""
_HIGH_SCORE = 0.05
"""Beyond this, what is not asked for is missed."""


def evaluate(
    dataset: Path,
    *,
    name: str | None = None,
    url: str | None = None,
    protocol: str = "chariot-v2-kserve",
    header: list[str] | None = None,
    header_file: ExistingFile | None = None,
    timeout: PositiveFloat = 60,
    ca: ExistingFile | None = None,
    cert: ExistingFile | None = None,
    key: ExistingFile | None = None,
    recorded: str | None = None,
    format: DatasetFormat | None = None,  # noqa: A002
    images: Path | None = None,
    split: str | None = None,
    task: _Task | None = None,
    skip_bad: Annotated[bool, Parameter(negative="")] = False,
    label_map: ExistingFile | None = None,
    slice: list[str] | None = None,  # noqa: A002
    confidence: _Fraction = 0.5,
    top_k: PositiveInt = 100,
    parameter: list[str] | None = None,
    limit: PositiveInt | None = None,
    concurrency: PositiveInt | None = None,
    out: Path | None = None,
    fresh: Annotated[bool, Parameter(negative="")] = False,
    json: Path | None = None,
    html: Path | None = None,
    worst: NonNegativeInt = 24,
    fail_under: list[str] | None = None,
    options: ModelOptions = ModelOptions(),  # noqa: B008
) -> None:
    """Measure a model on labelled data: here, through a server, or by what was recorded.

    Exits with 0, with 1 when a figure is lower than --fail-under wants, with 2 when nothing can be measured, and with
    130 when it was interrupted.

    Args:
        dataset: A folder or a file: images in a folder for each class, COCO, YOLO, DOTA, or questions as .jsonl.
        name: Which of several models; with --url the model's name, or Chariot id, in the paths.
        url: Ask the server there, instead of a model here; host:port for gRPC.
        protocol: What the server speaks: chariot-v2-kserve, chariot-v2, v2, v1, tensorflow-serving, grps, v2-grpc,
            grps-grpc.
        header: What the server's gate asks for, such as "X-Tenant: a"; not in any report.
        header_file: A file of such lines, for keys that are not to stand in the list of processes.
        timeout: Seconds to wait for an answer of the server.
        ca: Authorities to trust over TLS, instead of the usual ones (PEM).
        cert: A certificate to show to a server that asks for one (PEM).
        key: Its private key, where it is not in the same file.
        recorded: Ask nobody, and take the answers of this store of recordings.
        format: How the dataset is written; recognised otherwise.
        images: The folder with the images, where it is not where the format has it.
        split: Which split of a YOLO dataset; val, test or train otherwise.
        task: What is measured, where the labels allow for several.
        skip_bad: Leave out labels and images that cannot be used, and say so in the report.
        label_map: A JSON object of the dataset's label, or null, by the model's label.
        slice: A key of metadata to measure by, value for value; may be repeated.
        confidence: Findings that score lower count in average precision only.
        top_k: Ask for so many objects an image.
        parameter: Another parameter of every request, "name=value"; may be repeated.
        limit: Only so many images, the first ones.
        concurrency: How many images at once; 1 here, 4 with --url.
        out: A folder for the answers, from which a stopped evaluation goes on, and the reports.
        fresh: Throw away the answers in --out.
        json: A file for the report as JSON.
        html: A file for the report as a page.
        worst: How many images with mistakes the page shows.
        fail_under: The least value of a figure, "map=0.5"; may be repeated.
        options: Which models. --score-threshold is that of the objects asked for, 0.001 when absent.
    """
    least = _least(fail_under or ())
    try:
        if url is not None and recorded is not None:
            raise EvaluationError("Name a URL or recordings, not both")
        for path in (json, html):
            if path is not None and not path.parent.is_dir():
                raise EvaluationError(f"{path}: there is no folder {path.parent}")
            if path is not None and path.is_dir():
                raise EvaluationError(f"{path}: Expected a file to write, got a folder")
        wanted = TaskType(task) if task else None
        how = DatasetOptions(format=format, images=images, split=split, task=wanted, skip_bad=skip_bad)
        whole = read_dataset(dataset, how)
        found = _limited(whole, limit)
        check_slices(found, slice or ())
        if found.tasks[0] is not TaskType.IMAGE_TEXT_TO_TEXT:
            needed("valor_lite")
        if least:
            check_figures(found, least)
        names = read_label_map(label_map, found.labels) if label_map else None
        lowest = _LOWEST_SCORE if options.score_threshold is None else options.score_threshold
        if recorded is not None:
            words, collected, notes = _recorded(found, recorded, name)
        else:
            parameters = parameters_for(found, lowest, top_k, parameter or ())
            trust = Trust(ca=ca, cert=cert, key=key)
            source = (
                here(options, name, parameters)
                if url is None
                else server(url, protocol, name, parameters, gate_headers(header or (), header_file), timeout, trust)
            )
            # Of the whole, so that an evaluation of the first images can be gone on with.
            first_line = Header(charioteer=__version__, dataset=fingerprint(whole), source=source.told)
            collected = _asked(found, source, first_line, concurrency or (1 if url is None else 4), out, fresh=fresh)
            words, notes = source.words, [*source.notes, *_about_scores(parameters)]
        with _progress("Measuring", len(collected.records)) as told:
            report = evaluated(
                found,
                collected.records,
                collected.failures,
                words,
                confidence=confidence,
                slices=slice or (),
                names=names,
                notes=notes,
                progress=told,
            )
    except (EvaluationError, GateError, InferenceError, ModelError, OSError, SettingsError, TrustError) as error:
        _stop(str(error))
    except KeyboardInterrupt:
        kept = f"; the same command goes on from {out}" if out else "; with --out it could be gone on with"
        _stop(f"interrupted{kept}", _INTERRUPTED)
    unwritten: OSError | None = None
    try:
        _write(report, out, json, html, worst)
    except OSError as error:
        unwritten = error
    print_report(report, console())
    if unwritten:
        _stop(f"the report cannot be written: {unwritten}")
    _judge(report, least)


def _limited(dataset: Dataset, limit: int | None) -> Dataset:
    if limit is None or limit >= len(dataset.items):
        return dataset
    note = f"Only the first {limit} of {len(dataset.items)} were asked about (--limit)."
    return msgspec.structs.replace(dataset, items=dataset.items[:limit], notes=(*dataset.notes, note))


def _asked(
    dataset: Dataset, source: Source, first_line: Header, concurrency: int, out: Path | None, *, fresh: bool
) -> Collected:
    with tempfile.TemporaryDirectory() as scratch:
        path = (out or Path(scratch)) / "predictions.jsonl"
        with (
            journal(path, first_line, fresh=fresh) as book,
            source.asker() as ask,
            _progress(f"Asking {source.words}", len(dataset.items)) as told,
        ):
            return collect(dataset.items, checked(dataset, ask), book, concurrency=concurrency, progress=told)


def _about_scores(parameters: Mapping[str, object]) -> list[str]:
    lowest = parameters.get("score_threshold")
    if not isinstance(lowest, int | float) or lowest <= _HIGH_SCORE:
        return []
    return [f"Objects were asked for from a score of {lowest:g} on: average precision and recall are lower for it."]


def _recorded(dataset: Dataset, url: str, name: str | None) -> tuple[str, Collected, Sequence[str]]:
    from app.evaluation.recorded import match_recorded
    from app.recording.address import read_address
    from app.recording.inference import RecordedInference
    from app.recording.query import NO_ERROR, InferenceQuery
    from app.recording.query_reader import Reader

    address = read_address(url)
    reader = Reader(address)

    def everything() -> Iterator[RecordedInference]:
        for batch in reader.batches(InferenceQuery(model=name, error=NO_ERROR)):
            yield from batch

    try:
        matched = match_recorded(dataset, everything(), name)
    finally:
        reader.close()
    notes = [
        "Recorded answers have the score threshold of their requests, usually 0.5: average precision is lower for it."
    ]
    if matched.repeated:
        notes.append(f"{matched.repeated} images were recorded more than once; the latest answers count.")
    return f"{matched.model}, as recorded in {address.shown}", matched.collected, notes


@contextmanager
def _progress(title: str, total: int) -> Generator[Callable[[int], None]]:
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = Console(stderr=True)
    with Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)


def _write(report: Report, out: Path | None, json: Path | None, html: Path | None, worst: int) -> None:
    if out:
        out.mkdir(parents=True, exist_ok=True)
    for path in [json, out / "report.json" if out else None]:
        if path:
            path.write_bytes(json_report(report))
    pages = [path for path in (html, out / "report.html" if out else None) if path]
    page = html_report(report, worst) if pages else b""
    for path in pages:
        path.write_bytes(page)


def _judge(report: Report, least: Mapping[str, float]) -> None:
    low: list[str] = []
    values = {each.name: each.value for each in report.measures.figures}
    values[ANSWERED] = report.measured / report.images
    for name, wanted in least.items():
        value = values.get(name)
        if value is None or value < wanted:
            low.append(f"{name} is {'nothing' if value is None else f'{value:.4f}'}, and {wanted:g} is wanted")
    if low:
        _stop("; ".join(low), _TOO_LOW)


def _least(given: Sequence[str]) -> Mapping[str, float]:
    least: dict[str, float] = {}
    for each in given:
        name, _, value = each.partition("=")
        try:
            least[name.strip()] = float(value)
        except ValueError:
            value = "nan"
        if not math.isfinite(float(value)):
            _stop(f'--fail-under: Expected "figure=value", such as "map=0.5", got {each}')
    return least


def _stop(reason: str, status: int = _IMPOSSIBLE) -> NoReturn:
    sys.stderr.write(f"charioteer: {reason}\n")
    sys.exit(status)
