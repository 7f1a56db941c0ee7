"""``charioteer tune``."""

import os
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter
from cyclopts.types import ExistingFile
from cyclopts.validators import Number
from rich.table import Table

from app.cli.terminal import console
from app.settings.model import SETTINGS_FILE
from app.settings.server import ServerSettings

__all__ = ("tune",)

# Limits of model-settings.json, so that the result can be written there.
_BatchSize = Annotated[int, Parameter(validator=Number(gte=1, lte=1024))]
_Threads = Annotated[int, Parameter(validator=Number(gte=1, lte=256))]
_Milliseconds = Annotated[float, Parameter(validator=Number(gte=0, lte=1000))]
_Seconds = Annotated[float, Parameter(validator=Number(gt=0, lte=3600))]


def tune(
    path: Annotated[Path, Parameter(help="A model file, or a model's folder.")],
    *,
    objective: Annotated[Literal["throughput", "latency"], Parameter(name="--for")] = "throughput",
    batches: tuple[_BatchSize, ...] = (1, 2, 4, 8, 16),
    threads: tuple[_Threads, ...] | None = None,
    delay_ms: _Milliseconds = 2.0,
    seconds: _Seconds = 2.0,
    image: ExistingFile | None = None,
    write: bool = False,
    allow_code: Annotated[bool, Parameter(env_var="CHARIOTEER_ALLOW_CODE", negative="")] = False,
) -> None:
    """Find the batch size and the thread count that serve a model best on this machine.

    Each combination is measured as the server would run it, first with one request at a time, then under load. Keep the
    machine idle meanwhile.

    Args:
        path: Model file or model folder.
        objective: What to optimize: throughput under load, or the latency of a single request.
        batches: Batch sizes to try; 1 is always included.
        threads: Thread counts for one call to try; 1 and all cores by default.
        delay_ms: Milliseconds that the first request of a batch waits for others.
        seconds: Seconds for each measurement under load.
        image: Image to send; drawn shapes by default.
        write: Write the best result to model-settings.json.
        allow_code: Whether to allow models that are Python classes. Their code then runs here.
    """
    from app.assembly.benchmarking import all_candidates, best_measurement, measure_candidates, write_settings
    from app.assembly.discovery import model_at
    from app.cli.check import sample_image
    from app.engine.registry import version_sort_key

    latest = max(model_at(path), key=lambda source: version_sort_key(source.version))
    source = msgspec.structs.replace(latest, allow_code=allow_code)
    cores = len(os.sched_getaffinity(0))
    workers = ServerSettings().worker_count
    candidates = all_candidates(batches, threads or (1, cores), delay_ms)
    image_data = image.read_bytes() if image else sample_image()
    terminal = console()
    with terminal.status(f"Serving {source.name} in {len(candidates)} configurations, {seconds * 1.25:g} s each"):
        measurements = list(measure_candidates(source, candidates, image_data, workers, seconds))
    best = best_measurement(measurements, objective)
    table = Table(title=f"{source.name} {source.version}, {workers} workers", title_justify="left")
    for column in ("batch", "threads", "answers/s", "p50 ms", "p99 ms", "alone ms", "CPU ms", ""):
        table.add_column(column, justify="right")
    for result in measurements:
        numbers = (result.rate, result.p50, result.p99, result.single_latency, result.cpu)
        mark = "best" if result is best else ""
        table.add_row(
            str(result.candidate.batch), str(result.candidate.threads), *(f"{number:.2f}" for number in numbers), mark
        )
    terminal.print(table)
    if write:
        terminal.print(f"Written to {write_settings(source.folder, best.candidate)}", highlight=False)
    else:
        terminal.print(f"--write saves the best result to {SETTINGS_FILE}", highlight=False)
