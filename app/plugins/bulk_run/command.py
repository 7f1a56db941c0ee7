"""``charioteer run``."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.types import NonNegativeFloat, PositiveInt
from cyclopts.validators import Number

from app import __version__
from app.clients.credentials import CredentialsError
from app.clients.protocol import InferenceClientError
from app.core.cli.interruption import exit_interrupted
from app.core.cli.model_options import given_options, takes_models
from app.core.cli.terminal import Bar, counted, error_console, printable, progress, reject_unused, stop
from app.core.engine.error_text import needs_extra
from app.core.server.process_setup import configure_process
from app.core.settings.images import ImageSettings
from app.core.settings.model import ModelError
from app.core.settings.server import ModelOptions, SettingsError
from app.inputs import read_assignments
from app.plugins.evaluation.dataset import EvaluationError
from app.plugins.evaluation.model import ServerOptions
from app.plugins.recording.sources import Source, SourceImage
from tasks.inference.error import InferenceError

if TYPE_CHECKING:
    from app.plugins.bulk_run.job import RunJob

_REPORT_SECONDS = 60.0


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WorkOptions:
    """How the model answers."""

    candidate_labels: list[str] | None = None
    """Class to look for, for zero-shot models; repeat it for each class."""

    parameter: list[str] | None = None
    """Extra parameter of every image, "name=value"; may be repeated."""

    batch: PositiveInt | None = None
    """Images in one call of a local model; 1 by default."""

    concurrency: PositiveInt | None = None
    """Threads of a local model, one for each core by default; parallel requests with --url, 8 by default; workers with
    --ray, 2 by default."""

    ray: str | None = None
    """Run on this Ray cluster: its address, auto for the one on this machine, or local to start one."""

    num_gpus: NonNegativeFloat | None = None
    """GPUs of each worker of --ray; none by default."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SelectionOptions:
    """Which images of the source to answer."""

    limit: PositiveInt | None = None
    """Only this many images, the first ones."""

    sample: Annotated[float | None, Parameter(validator=Number(gt=0, lte=1))] = None
    """Only this fraction of the images, a random choice that is the same in every run."""

    def select(self, images: Source) -> Iterator[SourceImage]:
        """Return the first images of those whose digest is in the sample."""
        bound = 1 << 64 if self.sample is None else round(self.sample * (1 << 64))
        return islice((image for image in images if int(image.digest[:16], 16) < bound), self.limit)


@takes_models
def run(
    source: str,
    *,
    to: Path,
    name: str | None = None,
    server: ServerOptions = ServerOptions(),  # noqa: B008
    work: WorkOptions = WorkOptions(),
    selection: SelectionOptions = SelectionOptions(),
    part_size: PositiveInt = 10_000,
    fresh: Annotated[bool, Parameter(negative="")] = False,
    options: ModelOptions = ModelOptions(),  # noqa: B008
    image_settings: ImageSettings = ImageSettings(),  # noqa: B008
) -> None:
    """Run a model on many images, and write its answers as Parquet.

    The same command continues a run that was interrupted or killed. An image that has no answer gets a row with the
    reason. Exits with 0 if all images have rows, with 2 if the run stopped, and with 130 when it was interrupted.

    Args:
        source: Folder, glob, manifest (.jsonl, .parquet), .tar, or a URL of these, such as s3://.
        to: Folder for the results, or one file that ends in .parquet.
        name: Which model, if there are several; with --url, the model name or Chariot id in the paths.
        server: The server of the model.
        work: How the model answers.
        selection: Which images to answer.
        part_size: Maximum number of images in one file of the results.
        fresh: Discard earlier results in --to.
        options: Which models. --score-threshold is the score threshold of requests.
        image_settings: Limits on the images of a local model.
    """
    with needs_extra("charioteer run", "parquet", SettingsError):
        from app.plugins.bulk_run.parts import open_parts
    try:
        server.check()
        if server.url is not None:
            given = given_options(options, image_settings, apart_from=("plugins", "score_threshold"))
            reject_unused("with --url, which names the server", {"--batch": work.batch, "--ray": work.ray, **given})
        if work.ray is None:
            reject_unused("without --ray", {"--num-gpus": work.num_gpus})
        images = Source(source)
        configure_process()
        job = _job(name, server, work, options, image_settings)
        results = {"charioteer": __version__, "source": images.text, **job.identity}
        total = sum(1 for _ in selection.select(images)) if images.countable else None
        no_images = f"There are no images in {source}"
        if total == 0:
            raise SettingsError(no_images)
        with open_parts(to, results, part_size, fresh=fresh) as parts:
            if parts.count:
                error_console().print(f"{counted(parts.count, 'image')} finished before")
            with progress("Running", total) as bar, job.open() as answer:
                done, started = parts.count, time.monotonic()
                unfinished = (image for image in selection.select(images) if not parts.has(image))
                parts.write(answer(unfinished), _reporter(bar, done, total))
                rate = (parts.count - done) / (time.monotonic() - started)
            if not parts.count:
                raise SettingsError(no_images)
            parts.complete()
    except (CredentialsError, EvaluationError, InferenceError, ModelError, OSError, SettingsError) as error:
        stop(error)
    except InferenceClientError as error:
        stop(f"{error}; the same command continues the run")
    except KeyboardInterrupt:
        exit_interrupted("interrupted; the same command continues the run")
    reasons = f"; `charioteer inferences {printable(to)} --error any` shows the reasons" if parts.errors else ""
    images_written = f"{counted(parts.count, 'image')}, {parts.errors:,} without an answer, {rate:.1f}/s{reasons}"
    error_console().print(f"Wrote {printable(to)}: {images_written}", soft_wrap=True)


def _job(
    name: str | None, server: ServerOptions, work: WorkOptions, options: ModelOptions, image_settings: ImageSettings
) -> "RunJob":
    """Return how images are answered: on a Ray cluster, by a server, or in this process."""
    from app.plugins.bulk_run.job import ModelWork, local_job, served_job

    parameters = read_assignments(work.parameter or ())
    if work.candidate_labels is not None:
        parameters["candidate_labels"] = work.candidate_labels
    model_work = ModelWork(
        options=options,
        name=name,
        parameters=parameters,
        image_settings=image_settings,
        batch=work.batch or 1,
        concurrency=work.concurrency,
    )
    if work.ray is None:
        return local_job(model_work) if server.url is None else served_job(model_work, server, server.url)
    with needs_extra("--ray", "ray", SettingsError):
        from app.plugins.bulk_run.ray_job import ray_job
    return ray_job(model_work, work.ray, work.num_gpus)


def _reporter(bar: Bar, done: int, total: int | None) -> Callable[[int], None]:
    """Return a function that shows the number of finished images; without a terminal, as a line each minute."""
    stderr, started = error_console(), time.monotonic()
    bar.show(done, total)
    shown = started

    def report(count: int) -> None:
        nonlocal shown
        bar.show(count, total)
        now = time.monotonic()
        if stderr.is_terminal or now - shown < _REPORT_SECONDS:
            return
        shown = now
        rate = (count - done) / (now - started)
        left = "" if total is None or not rate else f", {(total - count) / rate / 60:.0f} minutes left"
        stderr.print(f"{counted(count, 'image')}{'' if total is None else f' of {total:,}'}, {rate:.1f}/s{left}")

    return report
