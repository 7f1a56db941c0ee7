"""How a run answers its images: by a model in this process, on a server, or on a Ray cluster."""

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import Any

import msgspec

from app.clients.threads import map_in_threads
from app.core.settings.images import ImageSettings, image_limits
from app.core.settings.model import SETTINGS_FILE
from app.core.settings.server import ModelOptions, OperationSettings
from app.inputs import choose_model
from app.plugins.bulk_run.parts import to_batches
from app.plugins.bulk_run.predictors import LocalPredictor, Predictor, served_predictor
from app.plugins.evaluation.model import ServerOptions, served_model
from app.plugins.recording.inference import RecordedInference
from app.plugins.recording.sources import SourceImage

_REQUESTS = 8
"""Requests in flight by default."""
_Rows = Sequence[RecordedInference]
Answer = Callable[[Iterable[SourceImage]], Iterator[Any]]
"""Returns the rows of images as record batches of the recording's schema."""


class RunJob(msgspec.Struct, frozen=True, kw_only=True):
    """How images are answered: `identity` is all that an answer depends on, `open` loads or connects to the model."""

    identity: Mapping[str, object]
    open: Callable[[], AbstractContextManager[Answer]]


class ModelWork(msgspec.Struct, frozen=True, kw_only=True):
    """The model, the parameters of each request, and how many images and requests are in one call and in flight."""

    options: ModelOptions
    name: str | None
    parameters: Mapping[str, object]
    image_settings: ImageSettings
    batch: int
    concurrency: int | None

    def local_identity(self) -> Mapping[str, object]:
        """Return everything that the answers of a model on this machine depend on, such as the times of its files.

        Raise ModelError when there is no such model.
        """
        source = choose_model(self.options, self.name)
        folder = source.folder
        candidates = (source.file, folder / SETTINGS_FILE) if source.file else folder.rglob("*")
        # Settings and labels of all versions are above the folder of a version.
        shared = source.root.iterdir() if source.root else ()
        paths = sorted(path for path in {*candidates, *shared} if path.is_file() and "__pycache__" not in path.parts)
        states = {path: path.stat() for path in paths}
        return {
            "model": source.name,
            "version": source.version,
            "parameters": self.parameters,
            "files": [
                f"{os.path.relpath(path, folder)} {state.st_size} {state.st_mtime_ns}" for path, state in states.items()
            ],
            "score threshold": self.options.score_threshold,
        }


def local_job(work: ModelWork) -> RunJob:
    """Return a job for a model in this process. Raise `ModelError` if there is none."""
    source = choose_model(work.options, work.name)

    @contextmanager
    def opened() -> Generator[Answer]:
        predict = LocalPredictor(source, work.parameters, image_limits(work.image_settings))
        threads = work.concurrency or OperationSettings().worker_count
        yield lambda images: to_batches(predict_all(images, predict, threads, work.batch))

    return RunJob(identity=work.local_identity(), open=opened)


def served_job(work: ModelWork, server: ServerOptions, url: str) -> RunJob:
    """Return a job for a model on a server. Errors are as of `served_model`."""
    parameters = {**work.parameters}
    if work.options.score_threshold is not None:
        parameters["score_threshold"] = work.options.score_threshold
    model = served_model(server, url, work.name, parameters, persistent=True)

    @contextmanager
    def opened() -> Generator[Answer]:
        with model.open_predictor() as client:
            predict = served_predictor(client, server.protocol, work.name or "", parameters)
            yield lambda images: to_batches(predict_all(images, predict, work.concurrency or _REQUESTS, 1))

    return RunJob(identity=model.identity, open=opened)


def predict_all(images: Iterable[SourceImage], predict: Predictor, threads: int, batch: int) -> Iterator[_Rows]:
    """Yield the rows of `batch` images at a time. A thread reads and decodes images while others run the model.

    Raise ServerUnavailableError as `predict`; all rows before it have been yielded.
    """
    return map_in_threads(predict, batched(images, batch), threads)


def batched(images: Iterable[SourceImage], size: int) -> Iterator[Sequence[SourceImage]]:
    """Yield the images in lists of `size`; the last may be shorter."""
    remaining = iter(images)
    return iter(lambda: list(islice(remaining, size)), [])
