"""``charioteer tune`` and ``charioteer quantize``."""

import os
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter
from cyclopts.types import ExistingDirectory, ExistingFile, NormFloat, PositiveInt
from cyclopts.validators import Number

from app.core.cli.terminal import console, printable, progress
from app.core.settings.images import ImageSettings, image_limits
from app.core.settings.model import SETTINGS_FILE, ModelError
from app.core.settings.server import ServerSettings
from app.inputs import read_image
from app.report import Mark, Report, Table, print_report
from app.samples import sample_image

_ROUNDS = 3


def tune(
    path: Annotated[Path, Parameter(help="A model file, or a model's folder.")],
    *,
    image: ExistingFile | None = None,
    seconds: Annotated[float, Parameter(validator=Number(gt=0, lte=3600))] = 1.0,
    write: bool = False,
    allow_code: Annotated[bool, Parameter(env_var="CHARIOTEER_ALLOW_CODE", negative="")] = False,
    image_settings: ImageSettings = ImageSettings(),  # noqa: B008
) -> None:
    """Measure a model with a few settings that keep its answers: runtimes, batches and threads.

    They are measured in turns, as the server would run them. Keep the machine idle meanwhile.

    Args:
        path: Model file or model folder.
        image: Image to measure with; drawn shapes by default.
        seconds: Seconds for each measurement under load; each row has three.
        write: Write the settings with most answers a second to model-settings.json.
        allow_code: Whether to allow models that are Python classes. Their code then runs here.
        image_settings: Limits on images.
    """
    from app.core.assembly.discovery import latest_version, model_at
    from app.core.assembly.models import describe
    from app.plugins.tuning.benchmarking import best_measurement, measure_candidates
    from app.plugins.tuning.candidates import CURRENT, candidates_for, with_candidate, write_settings

    source = msgspec.structs.replace(latest_version(model_at(path)), allow_code=allow_code)
    workers, limits = ServerSettings().worker_count, image_limits(image_settings)
    images = [read_image(image, limits) if image else sample_image()]
    is_graph = describe(source).platform == "onnx"
    pairs, notes = [(CURRENT, source)], list[str]()
    for candidate in candidates_for(is_graph=is_graph, cores=len(os.sched_getaffinity(0)))[1:]:
        changed = with_candidate(source, candidate)
        try:
            describe(changed)
        except ModelError as error:
            notes.append(f"{candidate.name} was not measured: {error}")
            continue
        if all(changed.settings != other.settings for _, other in pairs):
            pairs.append((candidate, changed))
    with progress(f"Measuring {source.name}", len(pairs) * _ROUNDS) as bar:
        rows = measure_candidates(pairs, images, workers, seconds, _ROUNDS, bar.advance, limits)
    best = best_measurement(rows)
    columns = ("settings", "answers/s", "p50 ms", "p99 ms", "alone ms", "CPU ms", "")
    cells = tuple(
        (row.candidate.name, row.rate, row.p50, row.p99, row.single_latency, row.cpu, "best" if row is best else "")
        for row in rows
    )
    if best is rows[0]:
        result = "Nothing to change: the current settings are the best, or within the noise of the best."
    elif write:
        result = f"Written to {write_settings(source, best.candidate)}"
    else:
        result = f"--write saves the best settings to {SETTINGS_FILE}"
    report = Report(
        title=f"{source.name} {source.version}, {workers} workers",
        tables=[Table(title="", columns=columns, rows=cells)],
        notes=[*(Mark(note, "warning") for note in notes), result],
    )
    print_report(report, console())


def quantize(
    path: Annotated[Path, Parameter(help="An ONNX model file, or a model's folder.")],
    *,
    data: ExistingDirectory,
    limit: PositiveInt = 200,
    max_changed: NormFloat | None = None,
    output: Path | None = None,
) -> None:
    """Quantise an ONNX model to int8, and write it as a new version of the model.

    Int8 is faster on processors with instructions for it, and changes answers. They are compared with the original's
    on at least 50 images. If too many differ, nothing is written.

    Args:
        path: the model.
        data: Folder of images, such as those that --record-images stored. Half calibrate, half judge the answers; of
            fewer than 100, all do both.
        limit: Maximum number of images, chosen at random.
        max_changed: Share of answers that may differ, 0 to 1; by default 0.02 of the labels of a classifier, or 0.05
            of the objects, which match at IoU 0.5 and the same label.
        output: Folder to write; by default the next version beside the model.
    """
    from app.core.assembly.discovery import latest_version, model_at
    from app.plugins.tuning.quantization import choose_images, next_version
    from app.plugins.tuning.quantization import quantize as quantize_model

    source = latest_version(model_at(path))
    images = choose_images(data, limit)
    folder = output or next_version(source)
    with progress(f"Calibrating {source.name}") as bar:
        provenance = quantize_model(source, images, folder, bar.advance, max_changed)
    terminal = console()
    written = printable(folder)
    terminal.print(f"Wrote {written}, calibrated with {provenance.images} images by {provenance.tool}.", soft_wrap=True)
    if provenance.verdict:
        terminal.print(f"{provenance.verdict.finding}, on {provenance.verdict.processor}.", soft_wrap=True)
    if output is None and source.root is None:
        advice = f"A server of {printable(folder.parent)} uses it instead of version {source.version}"
        terminal.print(f"{advice} until you remove it.", soft_wrap=True)
