"""Find the batch size and thread count that serve a model best, by measuring each candidate on this machine."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from app.assembly.models import load
from app.engine.admission import QueueLimits
from app.engine.engine import Engine
from app.engine.events import RequestInfo
from app.engine.registry import Registry
from app.engine.repository import Repository
from app.engine.servable import Servable
from app.protocols.bytes_elements import BinaryElement, StringElement
from app.settings.model import SETTINGS_FILE, BatchingSettings, ModelError, ModelSource
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.tensor import BytesTensor, Datatype, InputTensor, Tensor, TensorSpec
from tasks.vision.request import IMAGE_INPUT

__all__ = (
    "Candidate",
    "Measurement",
    "all_candidates",
    "best_measurement",
    "measure_candidates",
    "request_for",
    "write_settings",
)

_TEXT = "On a good day in May, 3 ships left Dover."
_MIN_GAIN = 1.05
"""A candidate must be this much better than the simplest one, because smaller differences may be chance."""
_REQUEST_ID = "tune"


class Candidate(msgspec.Struct, frozen=True):
    """A candidate: settings with which to serve a model.

    Attributes:
        batch: maximum number of inputs in a call.
        delay_ms: milliseconds that the first request of a batch waits for others.
        threads: threads for one call.
    """

    batch: int = 1
    delay_ms: float = 0.0
    threads: int = 1


class Measurement(msgspec.Struct, frozen=True):
    """The measurements of a candidate.

    Attributes:
        candidate: the candidate.
        rate: responses a second under full load.
        p50: median latency under that load, in milliseconds.
        p99: 99th percentile of that latency, in milliseconds.
        single_latency: median latency of a single request, in milliseconds.
        cpu: CPU time of the process for each response, in milliseconds.
    """

    candidate: Candidate
    rate: float
    p50: float
    p99: float
    single_latency: float
    cpu: float


def all_candidates(batches: Iterable[int], threads: Iterable[int], delay_ms: float) -> Sequence[Candidate]:
    """Return every combination, the simplest first."""
    sizes = sorted({1, *batches})
    return [Candidate(size, delay_ms if size > 1 else 0.0, count) for count in sorted({1, *threads}) for size in sizes]


def request_for(servable: Servable, name: str, image: bytes) -> InferenceRequest:
    """Return a request with one image, one text, or tensors of zeros, as the model requires."""
    inputs = tuple(_input(spec, image) for spec in servable.inputs)
    return InferenceRequest(id=_REQUEST_ID, model_name=name, inputs=inputs)


def measure_candidates(
    source: ModelSource, candidates: Sequence[Candidate], image: bytes, workers: int, seconds: float
) -> Iterator[Measurement]:
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
    for candidate in candidates:
        # The thread count is fixed when the model is loaded.
        servable = load(_with_candidate(source, candidate))
        request = request_for(servable, source.name, image)
        servable.predict(request, Limits())
        registry = Registry([source])
        registry.load(source, _loader_of(servable))
        repository = Repository(registry, lambda: [source], _loader_of(servable))
        engine = Engine(repository, (), Limits(), workers, QueueLimits(max_waiting=10_000))
        try:
            yield asyncio.run(_measure(engine, request, candidate, workers, seconds))
        finally:
            engine.close()


def best_measurement(measurements: Sequence[Measurement], goal: str) -> Measurement:
    """Return the best measurement: for `throughput`, or for `latency` of a single request.

    The simplest candidate wins if the gain is small.

    Args:
        measurements: the simplest candidate first.
        goal: ``throughput`` or ``latency``.
    """
    score: Callable[[Measurement], float] = (
        (lambda result: 1 / result.single_latency) if goal == "latency" else (lambda result: result.rate)
    )
    simplest, best = measurements[0], max(measurements, key=score)
    return best if score(best) >= score(simplest) * _MIN_GAIN else simplest


def write_settings(folder: Path, candidate: Candidate) -> Path:
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
    settings["batching"] = (
        {"max_size": candidate.batch, "max_delay_ms": candidate.delay_ms} if candidate.batch > 1 else None
    )
    settings["onnxruntime"] = {**settings.get("onnxruntime", {}), "threads": candidate.threads}
    if settings["onnxruntime"] == {"threads": 1}:
        settings["onnxruntime"] = None
    present = {name: value for name, value in settings.items() if value is not None}
    content = msgspec.json.format(msgspec.json.encode(present), indent=2)
    temporary = file.with_suffix(".json.part")
    temporary.write_bytes(content + b"\n")
    temporary.replace(file)
    return file


async def _measure(
    engine: Engine, request: InferenceRequest, candidate: Candidate, workers: int, seconds: float
) -> Measurement:
    single_latencies, _ = await _run_load(engine, request, 1, seconds / 4)
    cpu_before = time.process_time()
    # Enough requests to fill every worker's batch while the next batches are collected.
    latencies, elapsed = await _run_load(engine, request, 2 * workers * candidate.batch, seconds)
    cpu_seconds = time.process_time() - cpu_before
    return Measurement(
        candidate=candidate,
        rate=len(latencies) / elapsed,
        p50=float(np.percentile(latencies, 50)),
        p99=float(np.percentile(latencies, 99)),
        single_latency=float(np.median(single_latencies)),
        cpu=cpu_seconds / len(latencies) * 1000,
    )


async def _run_load(
    engine: Engine, request: InferenceRequest, clients: int, seconds: float
) -> tuple[Sequence[float], float]:
    """Return the latency of each response, in milliseconds, at least one for each client; and the elapsed seconds."""
    latencies: list[float] = []
    started = time.perf_counter()
    info = RequestInfo(protocol=_REQUEST_ID, request_id=_REQUEST_ID)

    async def run_client() -> None:
        while True:
            sent = time.perf_counter()
            await engine.handle(info, request.model_name, lambda: request, lambda _: None)
            latencies.append((time.perf_counter() - sent) * 1000)
            if time.perf_counter() - started >= seconds:
                return

    await asyncio.gather(*(run_client() for _ in range(clients)))
    return latencies, time.perf_counter() - started


def _with_candidate(source: ModelSource, candidate: Candidate) -> ModelSource:
    changes: Mapping[str, Any] = {
        "batching": BatchingSettings(max_size=candidate.batch, max_delay_ms=candidate.delay_ms),
        "onnxruntime": msgspec.structs.replace(source.settings.onnxruntime, threads=candidate.threads),
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
