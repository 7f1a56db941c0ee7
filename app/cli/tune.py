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

# What settings may say, so that what is found can be written.
_BatchSize = Annotated[int, Parameter(validator=Number(gte=1, lte=1024))]
_Threads = Annotated[int, Parameter(validator=Number(gte=1, lte=256))]
_Milliseconds = Annotated[float, Parameter(validator=Number(gte=0, lte=1000))]
_Seconds = Annotated[float, Parameter(validator=Number(gt=0, lte=3600))]


def tune(
    path: Annotated[Path, Parameter(help="A model file, or a model's folder.")],
    *,
    wanted: Annotated[Literal["throughput", "latency"], Parameter(name="--for")] = "throughput",
    batches: tuple[_BatchSize, ...] = (1, 2, 4, 8, 16),
    threads: tuple[_Threads, ...] | None = None,
    delay_ms: _Milliseconds = 2.0,
    seconds: _Seconds = 2.0,
    image: ExistingFile | None = None,
    write: bool = False,
    allow_code: Annotated[bool, Parameter(env_var="CHARIOTEER_ALLOW_CODE", negative="")] = False,
) -> None:
    """Find the batch size and the threads with which a model is served best on this machine.

    The model is served with each of them, as the server would serve it, once to a lone sender and once to many. Leave
    the machine alone meanwhile.

    Args:
        path: the model.
        wanted: What counts: answers a second under load, or the time of a request that is alone.
        batches: Sizes of batches to try; 1 is always among them.
        threads: Threads of one call to try; 1 and all cores when absent.
        delay_ms: Milliseconds that the first request of a batch waits for others.
        seconds: Of each measurement.
        image: What to send; a picture of a few shapes otherwise.
        write: Put the best into model-settings.json.
        allow_code: Whether models may be Python classes, whose code then runs here.
    """
    from app.assembly.discovery import model_at
    from app.assembly.tuning import best_of, measured, ways, write_settings
    from app.cli.check import shapes
    from app.engine.registry import version_order

    latest = max(model_at(path), key=lambda each: version_order(each.version))
    source = msgspec.structs.replace(latest, allow_code=allow_code)
    cores = len(os.sched_getaffinity(0))
    workers = ServerSettings().worker_count
    tried = ways(batches, threads or (1, cores), delay_ms)
    picture = image.read_bytes() if image else shapes()
    printed = console()
    with printed.status(f"Serving {source.name} in {len(tried)} ways, {seconds * 1.25:g} s each"):
        found = list(measured(source, tried, picture, workers, seconds))
    best = best_of(found, wanted)
    table = Table(title=f"{source.name} {source.version}, {workers} workers", title_justify="left")
    for column in ("batch", "threads", "answers/s", "p50 ms", "p99 ms", "alone ms", "CPU ms", ""):
        table.add_column(column, justify="right")
    for each in found:
        numbers = (each.rate, each.p50, each.p99, each.lone, each.cpu)
        mark = "best" if each is best else ""
        table.add_row(str(each.way.batch), str(each.way.threads), *(f"{number:.2f}" for number in numbers), mark)
    printed.print(table)
    if write:
        printed.print(f"Written to {write_settings(source.folder, best.way)}", highlight=False)
    else:
        printed.print(f"--write puts the best into {SETTINGS_FILE}", highlight=False)
