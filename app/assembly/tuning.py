"""Find the batch size and thread count that serve a model best, by measuring each candidate on this machine."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from app.assembly.models import load
from app.engine.admission import Bounds
from app.engine.engine import Engine
from app.engine.events import RequestInfo
from app.engine.registry import Registry
from app.engine.repository import Repository
from app.engine.servable import Servable
from app.protocols.bytes_elements import BinaryElement, StringElement
from app.settings.model import SETTINGS_FILE, BatchingSettings, ModelError, ModelSource
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.tensor import BytesTensor, Datatype, InputTensor, Tensor, TensorSpec
from tasks.vision.request import IMAGE_INPUT

__all__ = ("Measured", "Way", "best_of", "measured", "request_for", "ways", "write_settings")

_TEXT = "On a good day in May, 3 ships left Dover."
_MIN_GAIN = 1.05
"""A candidate must be this much better than the simplest one, because smaller differences may be chance."""
_REQUEST_ID = "tune"


class Way(msgspec.Struct, frozen=True):
    """A candidate: settings with which to serve a model.

    Attributes:
        batch: maximum number of inputs in a call.
        delay_ms: milliseconds that the first request of a batch waits for others.
        threads: threads for one call.
    """

    batch: int = 1
    delay_ms: float = 0.0
    threads: int = 1


class Measured(msgspec.Struct, frozen=True):
    """The measurements of a candidate.

    Attributes:
        way: the candidate.
        rate: responses a second under full load.
        p50: median latency under that load, in milliseconds.
        p99: 99th percentile of that latency, in milliseconds.
        lone: median latency of a single request, in milliseconds.
        cpu: CPU time of the process for each response, in milliseconds.
    """

    way: Way
    rate: float
    p50: float
    p99: float
    lone: float
    cpu: float


def ways(batches: Iterable[int], threads: Iterable[int], delay_ms: float) -> Sequence[Way]:
    """Return every combination, the simplest first."""
    sizes = sorted({1, *batches})
    return [Way(size, delay_ms if size > 1 else 0.0, count) for count in sorted({1, *threads}) for size in sizes]


def request_for(servable: Servable, name: str, image: bytes) -> InferenceRequest:
    """Return a request with one image, one text, or tensors of zeros, as the model requires."""
    inputs = tuple(_input(spec, image) for spec in servable.inputs)
    return InferenceRequest(id=_REQUEST_ID, model_name=name, inputs=inputs)


def measured(
    source: ModelSource, candidates: Sequence[Way], image: bytes, workers: int, seconds: float
) -> Iterator[Measured]:
    """Serve a model with each candidate in turn, and yield the measurements.

    Args:
        source: the model.
        candidates: the candidates.
        image: an encoded image for models that take one.
        workers: number of worker threads, as the server would have.
        seconds: for each measurement under load.

    Raises:
        ModelError: when the model cannot be loaded.
        InferenceError: when an inference fails.
    """
    for way in candidates:
        # The thread count is fixed when the model is loaded.
        servable = load(_with_way(source, way))
        request = request_for(servable, source.name, image)
        servable.answer(request, Limits())
        registry = Registry([source])
        registry.load(source, _loader_of(servable))
        repository = Repository(registry, lambda: [source], _loader_of(servable))
        engine = Engine(repository, (), Limits(), workers, Bounds(max_waiting=10_000))
        try:
            yield asyncio.run(_measure(engine, request, way, workers, seconds))
        finally:
            engine.close()


def best_of(found: Sequence[Measured], wanted: str) -> Measured:
    """Return the best measurement: for `throughput`, or for `latency` of a single request.

    The simplest candidate wins if the gain is small.

    Args:
        found: the simplest candidate first.
        wanted: ``throughput`` or ``latency``.
    """
    score: Callable[[Measured], float] = (
        (lambda result: 1 / result.lone) if wanted == "latency" else (lambda result: result.rate)
    )
    simplest, best = found[0], max(found, key=score)
    return best if score(best) >= score(simplest) * _MIN_GAIN else simplest


def write_settings(folder: Path, way: Way) -> Path:
    """Write a candidate into the settings of the model in `folder`, and keep all other settings.

    Returns:
        The settings file.

    Raises:
        ModelError: when existing settings cannot be read.
        OSError: when the file cannot be written.
    """
    file = folder / SETTINGS_FILE
    settings: dict[str, Any] = {}
    if file.exists():
        try:
            settings = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise ModelError(f"{file} cannot be read: {error}") from None
    settings["batching"] = {"max_size": way.batch, "max_delay_ms": way.delay_ms} if way.batch > 1 else None
    settings["onnxruntime"] = {**settings.get("onnxruntime", {}), "threads": way.threads}
    if settings["onnxruntime"] == {"threads": 1}:
        settings["onnxruntime"] = None
    kept = {name: value for name, value in settings.items() if value is not None}
    content = msgspec.json.format(msgspec.json.encode(kept), indent=2)
    temporary = file.with_suffix(".json.part")
    temporary.write_bytes(content + b"\n")
    temporary.replace(file)
    return file


async def _measure(engine: Engine, request: InferenceRequest, way: Way, workers: int, seconds: float) -> Measured:
    lone, _ = await _load(engine, request, 1, seconds / 4)
    before = time.process_time()
    # Enough requests to fill every worker's batch while the next batches are collected.
    busy, elapsed = await _load(engine, request, 2 * workers * way.batch, seconds)
    spent = time.process_time() - before
    return Measured(
        way=way,
        rate=len(busy) / elapsed,
        p50=float(np.percentile(busy, 50)),
        p99=float(np.percentile(busy, 99)),
        lone=float(np.median(lone)),
        cpu=spent / len(busy) * 1000,
    )


async def _load(
    engine: Engine, request: InferenceRequest, clients: int, seconds: float
) -> tuple[Sequence[float], float]:
    """Return the latency of each response, in milliseconds, at least one for each client; and the elapsed seconds."""
    times: list[float] = []
    started = time.perf_counter()
    caller = RequestInfo(protocol=_REQUEST_ID, request_id=_REQUEST_ID)

    async def run_client() -> None:
        while True:
            sent = time.perf_counter()
            await engine.exchange(caller, request.model_name, lambda: request, lambda _: None)
            times.append((time.perf_counter() - sent) * 1000)
            if time.perf_counter() - started >= seconds:
                return

    await asyncio.gather(*(run_client() for _ in range(clients)))
    return times, time.perf_counter() - started


def _with_way(source: ModelSource, way: Way) -> ModelSource:
    changes: Mapping[str, Any] = {
        "batching": BatchingSettings(max_size=way.batch, max_delay_ms=way.delay_ms),
        "onnxruntime": msgspec.structs.replace(source.settings.onnxruntime, threads=way.threads),
    }
    return msgspec.structs.replace(source, settings=msgspec.structs.replace(source.settings, **changes))


def _loader_of(servable: Servable) -> Callable[[ModelSource], Servable]:
    return lambda _: servable


def _input(spec: TensorSpec, image: bytes) -> InputTensor:
    if spec == IMAGE_INPUT:
        return BytesTensor(name=spec.name, shape=(1,), elements=[BinaryElement(image)])
    if spec.datatype is Datatype.BYTES:
        return BytesTensor(name=spec.name, shape=(1,), elements=[StringElement(_TEXT)])
    shape = [1 if side == -1 else side for side in spec.shape]
    return Tensor(name=spec.name, datatype=spec.datatype, data=np.zeros(shape, spec.datatype.dtype))
