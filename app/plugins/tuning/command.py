"""``charioteer tune`` and ``charioteer quantize``."""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from cyclopts import Parameter
from cyclopts.types import ExistingDirectory, ExistingFile, ExistingPath, NormFloat, PositiveInt
from cyclopts.validators import Number
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from app.core.cli.inputs import read_image
from app.core.cli.samples import sample_image
from app.core.cli.terminal import console, counted, printable, progress, reject_unused, table
from app.core.settings.images import ImageSettings, image_limits
from app.core.settings.model import SETTINGS_FILE, ModelError, ModelSource
from app.core.settings.server import ServerSettings

if TYPE_CHECKING:
    from app.plugins.tuning.benchmarking import Measurement
    from app.plugins.tuning.candidates import Candidate
    from app.plugins.tuning.run import TuningSearch

# Limits of model-settings.json, so that the result can be written there.
_BatchSize = Annotated[int, Parameter(validator=Number(gte=1, lte=1024))]
_Threads = Annotated[int, Parameter(validator=Number(gte=1, lte=256))]
_SEVERAL = Parameter(consume_multiple=True)
_MAX_SENT = 32
"""Maximum number of different images that are sent in rotation."""
_NAMES = ("runtime", "precision", "decode")
_GAINS = {"throughput": "answers a second", "latency": "latency of a single request", "cost": "CPU time"}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TuningOptions:
    """What to try."""

    max_drop: NormFloat = 0.005
    """Maximum drop of the metric with --labels, or of the agreement with fp32 with --data."""

    objective: Annotated[Literal["throughput", "latency", "cost"], Parameter(name="--for")] = "throughput"
    """What to optimize: throughput under load, the latency of a single request, or CPU time (cost)."""

    runtimes: Annotated[tuple[Literal["onnxruntime", "openvino"], ...], _SEVERAL] = ("onnxruntime", "openvino")
    """Runtimes to try for an ONNX model; onnxruntime is always included."""

    precisions: Annotated[tuple[Literal["fp32", "bf16", "int8"], ...], _SEVERAL] = ("fp32", "bf16", "int8")
    """Precisions to try for an ONNX model; fp32 is always included."""

    decodes: Annotated[tuple[Literal["full", "reduced"], ...], _SEVERAL] = ("full", "reduced")
    """Ways to decode images; full is always included."""

    resizes: Annotated[tuple[Literal["own", "opencv"], ...], _SEVERAL] = ("own", "opencv")
    """Ways to resize images; own is always included, and opencv is tried if the own resize is antialiased."""

    batches: Annotated[tuple[_BatchSize, ...], _SEVERAL] = (1, 2, 4, 8, 16)
    """Batch sizes to try; 1 is always included."""

    threads: Annotated[tuple[_Threads, ...] | None, _SEVERAL] = None
    """Thread counts for one call to try; 1 and all cores by default, 1 is always included."""

    delay_ms: Annotated[float, Parameter(validator=Number(gte=0, lte=1000))] = 2.0
    """Milliseconds that the first request of a batch waits for others."""

    seconds: Annotated[float, Parameter(validator=Number(gt=0, lte=3600))] = 1.0
    """Seconds for each measurement under load; each set-up has three."""

    minutes: Annotated[float, Parameter(validator=Number(gt=0, lte=1440))] = 10.0
    """Maximum minutes for everything."""


def tune(
    path: Annotated[Path, Parameter(help="A model file, or a model's folder.")],
    *,
    data: ExistingDirectory | None = None,
    labels: ExistingPath | None = None,
    options: TuningOptions = TuningOptions(),
    limit: PositiveInt = 200,
    image: ExistingFile | None = None,
    write: bool = False,
    allow_code: Annotated[bool, Parameter(env_var="CHARIOTEER_ALLOW_CODE", negative="")] = False,
    image_settings: ImageSettings = ImageSettings(),  # noqa: B008
) -> None:
    """Find the runtime, precision, image decoding, resize, batch size and thread count that serve a model best here.

    What changes answers is compared with fp32 on your images first, and refused if it changes them too much. The rest
    is measured in turns, as the server would run it. Keep the machine idle meanwhile.

    Args:
        path: Model file or model folder.
        data: Folder of images to compare answers on, such as those of --record-images.
        labels: Labelled dataset to measure answers on, as for `charioteer evaluate`.
        options: What to try.
        limit: Maximum number of images to compare.
        image: Image to measure with; those of --data or --labels, or drawn shapes, by default.
        write: Write the best result to model-settings.json; for int8, as a new version of the model.
        allow_code: Whether to allow models that are Python classes. Their code then runs here.
        image_settings: Limits on images.
    """
    from app.core.assembly.discovery import latest_version, model_at
    from app.plugins.evaluation.dataset import EvaluationError
    from app.plugins.tuning.data import read_tuning_data
    from app.plugins.tuning.run import TuningSearch

    if labels is not None:
        reject_unused("with --labels, whose images are compared", {"--data": data})
    source = msgspec.structs.replace(latest_version(model_at(path)), allow_code=allow_code)
    workers = ServerSettings().worker_count
    limits = image_limits(image_settings)
    terminal = console()
    try:
        tuning_data = read_tuning_data(data, labels, limit, limits)
        items = tuning_data.items[:_MAX_SENT] if tuning_data else ()
        images = [read_image(image, limits)] if image else [item.image.read_bytes() for item in items]
        with tempfile.TemporaryDirectory() as scratch, progress(f"Tuning {source.name}") as bar:
            images = images or [sample_image()]
            search = TuningSearch(source, tuning_data, images, limits, options, workers, Path(scratch), bar)
            best, current = search.run()
            _print_checks(search, terminal)
            _print_speed(search, best, current, f"{source.name} {source.version}, {workers} workers", terminal)
            if best is current:
                terminal.print("Nothing to change: the current settings are the best, or within the noise of the best.")
                return
            if current is not None:
                now, then = (row.figure(options.objective) for row in (current, best))
                terminal.print(f"{_GAINS[options.objective]}: {now:.2f} now, {then:.2f} with the best.")
            if write:
                written = _write(source, search.sources[best.candidate.precision], best.candidate, workers)
                terminal.print(f"Written to {printable(written)}", soft_wrap=True)
            else:
                terminal.print(f"--write saves the best result to {SETTINGS_FILE}")
    except EvaluationError as error:
        raise ModelError(str(error)) from None


def _print_checks(search: "TuningSearch", terminal: Console) -> None:
    if search.comparison is None:
        return
    metric, images = search.comparison.metric_name, len(search.comparison.items)
    headings = (*_NAMES, metric, "drop", "labels", "matched", "IoU mean, least", "score", "")
    answers = _figures(f"Answers, {metric} on {counted(images, 'image')}", *headings)
    for candidate, check in search.checks.items():
        agreement = check.agreement
        objects = agreement if agreement and agreement.mean_iou is not None else None
        answers.add_row(
            *_names(candidate),
            f"{check.metric:.4f}",
            f"{check.drop:.4f}",
            f"{agreement.labels:.3f}" if agreement else "",
            f"{objects.matched} of {objects.objects}" if objects else "",
            f"{objects.mean_iou:.4f}, {objects.min_iou:.3f}" if objects else "",
            f"{agreement.score_difference:.3f}" if agreement else "",
            "refused" if candidate in search.refused else "",
        )
    print_figures(answers, terminal)


def _print_speed(
    search: "TuningSearch", best: "Measurement", current: "Measurement | None", title: str, terminal: Console
) -> None:
    speed = _figures(title, *_NAMES, "batch", "threads", "answers/s", "p50 ms", "p99 ms", "alone ms", "CPU ms", "")
    for row in search.measurements:
        numbers = (row.rate, row.p50, row.p99, row.single_latency, row.cpu)
        speed.add_row(
            *_names(row.candidate),
            str(row.candidate.batch),
            str(row.candidate.threads),
            *(f"{number:.2f}" for number in numbers),
            ", ".join(name for name, marked in (("now", current), ("best", best)) if row is marked),
        )
    print_figures(speed, terminal)
    for note in search.notes:
        terminal.print(f"[yellow]{printable(note)}[/yellow]", soft_wrap=True)


def _figures(title: str, *headings: str) -> Table:
    figures = table(*headings, title=title)
    for column in figures.columns:
        column.justify = "right"
    return figures


def print_figures(figures: Table, terminal: Console) -> None:
    """Print a table without breaking its numbers; in a narrow terminal, without lines."""
    for column in figures.columns[len(_NAMES) :]:
        column.min_width = max((len(word) for cell in column.cells for word in str(cell).split()), default=0)
    if terminal.measure(figures).maximum >= terminal.width:
        figures.box, figures.padding, figures.collapse_padding = SIMPLE_HEAD, (0, 1), True
    terminal.print(figures)


def _names(candidate: "Candidate") -> Sequence[str]:
    precision = candidate.precision if candidate.runtime else ""
    decode = "reduced" if candidate.reduced_decode else "full"
    return (candidate.runtime or "own", precision, f"{decode}, opencv" if candidate.opencv_resize else decode)


def _write(source: ModelSource, served: ModelSource, candidate: "Candidate", workers: int) -> Path:
    """Write the best candidate to the settings of the model, or of a new version if it is a new graph."""
    from app.plugins.tuning.candidates import write_settings
    from app.plugins.tuning.quantization import next_version

    if served.folder == source.folder:
        return write_settings(source, candidate, workers)
    folder = next_version(source)
    shutil.copytree(served.folder, folder)
    return write_settings(msgspec.structs.replace(served, folder=folder), candidate, workers)


def quantize(
    path: Annotated[Path, Parameter(help="An ONNX model file, or a model's folder.")],
    *,
    data: ExistingDirectory,
    limit: PositiveInt = 100,
    output: Path | None = None,
) -> None:
    """Quantise an ONNX model to int8, and write it as a new version of the model.

    Int8 is faster on processors with instructions for it, and changes answers. Compare them before you serve it:
    `charioteer evaluate` measures each version.

    Args:
        path: the model.
        data: Folder of images for the calibration, such as those that --record-images stored.
        limit: Maximum number of images, chosen at random.
        output: Folder to write; by default the next version beside the model.
    """
    from app.core.assembly.discovery import latest_version, model_at
    from app.plugins.tuning.quantization import choose_images, next_version
    from app.plugins.tuning.quantization import quantize as quantize_model

    source = latest_version(model_at(path))
    images = choose_images(data, limit)
    folder = output or next_version(source)
    with progress(f"Calibrating {source.name}", len(images)) as bar:
        provenance = quantize_model(source, images, folder, bar.advance)
    terminal = console()
    written = printable(folder)
    terminal.print(f"Wrote {written}, calibrated with {provenance.images} images by {provenance.tool}.", soft_wrap=True)
    terminal.print(f"It loads, and its outputs differ from the original's by at most {provenance.difference:.1%}.")
    if output is None and source.root is None:
        advice = f"A server of {printable(folder.parent)} uses it instead of version {source.version}"
        terminal.print(f"{advice} until you remove it.", soft_wrap=True)
