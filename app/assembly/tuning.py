"""What settings serve a model best on this machine, found by serving it with one after another."""

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
from app.engine.events import Caller
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
_WORTHWHILE = 1.05
"""A way that is not the plainest has to be so much better, or the difference may be chance."""
_ID = "tune"


class Way(msgspec.Struct, frozen=True):
    """One way to serve a model.

    Attributes:
        batch: inputs of one call at most.
        delay_ms: milliseconds that the first request of a batch waits for others.
        threads: of one call.
    """

    batch: int = 1
    delay_ms: float = 0.0
    threads: int = 1


class Measured(msgspec.Struct, frozen=True):
    """How a model did in one way.

    Attributes:
        way: which.
        rate: answers a second while as many requests come as are useful.
        p50: milliseconds, the median of those.
        p99: milliseconds.
        lone: milliseconds of a request while there is no other, the median.
        cpu: milliseconds of CPU time for an answer, of the whole process.
    """

    way: Way
    rate: float
    p50: float
    p99: float
    lone: float
    cpu: float


def ways(batches: Iterable[int], threads: Iterable[int], delay_ms: float) -> Sequence[Way]:
    """Every combination, the plainest first."""
    sizes = sorted({1, *batches})
    return [Way(size, delay_ms if size > 1 else 0.0, count) for count in sorted({1, *threads}) for size in sizes]


def request_for(servable: Servable, name: str, picture: bytes) -> InferenceRequest:
    """A request of one picture, or one text, or tensors of noughts: whatever the model takes."""
    inputs = tuple(_input(spec, picture) for spec in servable.inputs)
    return InferenceRequest(id=_ID, model_name=name, inputs=inputs)


def measured(
    source: ModelSource, tried: Sequence[Way], picture: bytes, workers: int, seconds: float
) -> Iterator[Measured]:
    """Serve a model in each of the ways, for so many seconds each.

    Args:
        source: the model.
        tried: the ways.
        picture: an encoded image, sent to models that take one.
        workers: threads that answer requests, as the server would have them.
        seconds: of each measurement.

    Raises:
        ModelError: when the model cannot be served.
        InferenceError: when it cannot answer.
    """
    for way in tried:
        # A model of another thread count is another model.
        servable = load(_in_way(source, way))
        request = request_for(servable, source.name, picture)
        servable.answer(request, Limits())
        registry = Registry([source])
        registry.load(source, _giving(servable))
        repository = Repository(registry, lambda: [source], _giving(servable))
        engine = Engine(repository, (), Limits(), workers, Bounds(max_waiting=10_000))
        try:
            yield asyncio.run(_measure(engine, request, way, workers, seconds))
        finally:
            engine.close()


def best_of(found: Sequence[Measured], wanted: str) -> Measured:
    """The best way: `throughput`, or `latency` of a request that is alone. The plainest wins where little is gained.

    Args:
        found: the plainest way first.
        wanted: what counts.
    """
    score: Callable[[Measured], float] = (
        (lambda each: 1 / each.lone) if wanted == "latency" else (lambda each: each.rate)
    )
    plainest, best = found[0], max(found, key=score)
    return best if score(best) >= score(plainest) * _WORTHWHILE else plainest


def write_settings(folder: Path, way: Way) -> Path:
    """Put a way into the settings of the model in `folder`, and leave all else in them as it is.

    Returns:
        The file.

    Raises:
        ModelError: when there are settings that cannot be read.
        OSError: when they cannot be written.
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
    # Enough for every worker's batch, and for the next ones to gather meanwhile.
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
    engine: Engine, request: InferenceRequest, senders: int, seconds: float
) -> tuple[Sequence[float], float]:
    """Milliseconds of each of the answers that so many senders get, one at least each; and the seconds of all."""
    times: list[float] = []
    started = time.perf_counter()
    caller = Caller(protocol=_ID, request_id=_ID)

    async def send() -> None:
        while True:
            began = time.perf_counter()
            await engine.exchange(caller, request.model_name, lambda: request, lambda _: None)
            times.append((time.perf_counter() - began) * 1000)
            if time.perf_counter() - started >= seconds:
                return

    await asyncio.gather(*(send() for _ in range(senders)))
    return times, time.perf_counter() - started


def _in_way(source: ModelSource, way: Way) -> ModelSource:
    changes: Mapping[str, Any] = {
        "batching": BatchingSettings(max_size=way.batch, max_delay_ms=way.delay_ms),
        "onnxruntime": msgspec.structs.replace(source.settings.onnxruntime, threads=way.threads),
    }
    return msgspec.structs.replace(source, settings=msgspec.structs.replace(source.settings, **changes))


def _giving(servable: Servable) -> Callable[[ModelSource], Servable]:
    return lambda _: servable


def _input(spec: TensorSpec, picture: bytes) -> InputTensor:
    if spec == IMAGE_INPUT:
        return BytesTensor(name=spec.name, shape=(1,), elements=[BinaryElement(picture)])
    if spec.datatype is Datatype.BYTES:
        return BytesTensor(name=spec.name, shape=(1,), elements=[StringElement(_TEXT)])
    shape = [1 if side == -1 else side for side in spec.shape]
    return Tensor(name=spec.name, datatype=spec.datatype, data=np.zeros(shape, spec.datatype.dtype))
