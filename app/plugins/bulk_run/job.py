"""How a run answers its images: by a model in this process, on a server, or on a Ray cluster."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import Any

import msgspec

from app.clients.threads import map_in_threads
from app.core.cli.inputs import choose_model
from app.core.settings.model import SETTINGS_FILE
from app.core.settings.server import ModelOptions, OperationSettings
from app.plugins.bulk_run.parts import to_batches
from app.plugins.bulk_run.predictors import LocalPredictor, Predictor, ServedPredictor
from app.plugins.evaluation.model import EvaluatedModel
from app.plugins.recording.inference import RecordedInference
from app.plugins.recording.sources import SourceImage
from tasks.inference.limits import Limits

_Rows = Sequence[RecordedInference]
Answer = Callable[[Iterable[SourceImage]], Iterator[Any]]
"""Returns the rows of images as record batches of the recording's schema."""


class RunJob(msgspec.Struct, frozen=True, kw_only=True):
    """How images are answered: `identity` is all that an answer depends on, `open` loads or connects to the model."""

    identity: Mapping[str, object]
    open: Callable[[], AbstractContextManager[Answer]]


def local_job(
    options: ModelOptions,
    name: str | None,
    parameters: Mapping[str, object],
    limits: Limits,
    threads: int | None,
    batch: int,
) -> RunJob:
    """Return a job for a model in this process. Raise `ModelError` if there is none."""
    source = choose_model(options, name)

    @contextmanager
    def opened() -> Generator[Answer]:
        predict = LocalPredictor(source, parameters, limits)
        count = threads or OperationSettings().worker_count
        yield lambda images: to_batches(predict_all(images, predict, count, batch))

    return RunJob(identity=local_identity(options, name, parameters), open=opened)


def local_identity(options: ModelOptions, name: str | None, parameters: Mapping[str, object]) -> Mapping[str, object]:
    """Return everything that the answers of the chosen model depend on, such as the sizes and times of its files.

    Raise ModelError when there is no such model.
    """
    source = choose_model(options, name)
    folder = source.folder
    candidates = (source.file, folder / SETTINGS_FILE) if source.file else folder.rglob("*")
    # Settings and labels of all versions are above the folder of a version.
    shared = source.root.iterdir() if source.root else ()
    paths = sorted(path for path in {*candidates, *shared} if path.is_file() and "__pycache__" not in path.parts)
    states = {path: path.stat() for path in paths}
    files = [
        f"{path.relative_to(folder) if path.is_relative_to(folder) else path} {state.st_size} {state.st_mtime_ns}"
        for path, state in states.items()
    ]
    identity = {"model": source.name, "version": source.version, "parameters": parameters, "files": files}
    return {**identity, "score threshold": options.score_threshold}


def served_job(
    model: EvaluatedModel, protocol: str, name: str, parameters: Mapping[str, object], requests: int
) -> RunJob:
    """Return a job for a model on a server, with at most this number of requests in flight."""

    @contextmanager
    def opened() -> Generator[Answer]:
        with model.open_predictor() as client:
            predict = ServedPredictor(client, protocol, name, parameters)
            yield lambda images: to_batches(predict_all(images, predict, requests, 1))

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
