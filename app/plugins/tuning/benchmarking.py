"""Measure how fast a model is with different settings on this machine."""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial

import msgspec
import numpy as np

from app.core.assembly.models import load
from app.core.engine.engine import Engine
from app.core.engine.models.registry import Registry
from app.core.engine.models.repository import Repository
from app.core.engine.request_context import RequestContext
from app.core.engine.scheduling.admission import QueueLimits
from app.core.settings.model import ModelSource
from app.core.wire.bytes_elements import BinaryElement, StringElement
from app.plugins.tuning.candidates import Candidate
from app.samples import SAMPLE_TEXT
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.tensor import BytesTensor, Datatype, InputTensor, Tensor, TensorSpec
from tasks.vision.request import IMAGE_INPUT

_MIN_GAIN = 1.05
"""A candidate must be this much better than a simpler one, because smaller differences may be chance."""
_REQUEST_ID = "tune"
_DEFAULT_LIMITS = Limits()

_Figures = tuple[float, float, float, float, float]
"""The figures of a `Measurement` in one round, in its order."""


class Measurement(msgspec.Struct, frozen=True):
    """The medians of a candidate's measurements, with times in milliseconds.

    Attributes:
        rate: responses a second under full load.
        p50: median latency under that load.
        p99: 99th percentile of that latency.
        single_latency: median latency of a single request.
        cpu: CPU time of the process for each response.
        rates: the rate of each round, for comparisons of the same round.
    """

    candidate: Candidate
    rate: float
    p50: float
    p99: float
    single_latency: float
    cpu: float
    rates: tuple[float, ...]


def measure_candidates(
    candidates: Sequence[tuple[Candidate, ModelSource]],
    images: Sequence[bytes],
    workers: int,
    seconds: float,
    rounds: int = 1,
    on_measured: Callable[[], None] = lambda: None,
    limits: Limits = _DEFAULT_LIMITS,
) -> Sequence[Measurement]:
    """Serve the candidates in turns, so that all meet the same load of the machine, and return their medians in order.

    Each candidate comes with the model that has its settings. The server has `workers` threads; `images` are sent in
    rotation to models that take one. Each of the `rounds` measurements of a candidate has `seconds` under load.
    Raise ModelError when a model cannot be loaded. Raise InferenceError when an inference fails.
    """
    loaded = [_load(source, images, limits) for _, source in candidates]
    measured: list[list[_Figures]] = [[] for _ in candidates]
    for _ in range(rounds):
        for (repository, requests), (_, source), figures in zip(loaded, candidates, measured, strict=True):
            with closing(Engine(repository, limits, workers, QueueLimits(max_waiting=10_000))) as engine:
                figures.append(asyncio.run(_measure(engine, source, requests, workers, seconds)))
            on_measured()
    return [
        Measurement(candidate, *np.median(figures, axis=0).tolist(), rates=tuple(rate for rate, *_ in figures))
        for (candidate, _), figures in zip(candidates, measured, strict=True)
    ]


def best_measurement(measurements: Sequence[Measurement]) -> Measurement:
    """Return the simplest measurement whose rate is as good as the best one's. The simplest comes first.

    The best one must be better by 5 % in the median of the rounds, and in each of them.
    """
    best = max(measurements, key=lambda result: result.rate)

    def is_as_good(result: Measurement) -> bool:
        gains = np.divide(best.rates, result.rates)
        return result is best or bool(np.median(gains) < _MIN_GAIN or gains.min() <= 1)

    return next(filter(is_as_good, measurements))


def _load(
    source: ModelSource, images: Sequence[bytes], limits: Limits
) -> tuple[Repository, Iterator[InferenceRequest]]:
    """Load a model, and return it with the requests to send to it."""
    servable = load(source)
    inputs = [tuple(_input(spec, image) for spec in servable.inputs) for image in images]
    requests = [InferenceRequest(id=_REQUEST_ID, model_name=source.name, inputs=values) for values in inputs]
    servable.predict(requests[0], limits)
    # The load must not meet a limit of the model's queue.
    source = msgspec.structs.replace(source, settings=msgspec.structs.replace(source.settings, max_waiting=None))
    registry = Registry([source])
    registry.load(source, lambda _: servable)
    return Repository(registry, lambda: [source], lambda _: servable), itertools.cycle(requests)


async def _measure(
    engine: Engine, source: ModelSource, requests: Iterator[InferenceRequest], workers: int, seconds: float
) -> _Figures:
    name, batch = source.name, source.settings.batching.max_size
    single_latencies, _ = await _run_load(engine, name, requests, 1, seconds / 4)
    cpu_before = time.process_time()
    # Enough requests to fill every worker's batch while the next batches are collected.
    latencies, elapsed = await _run_load(engine, name, requests, 2 * workers * batch, seconds)
    cpu = (time.process_time() - cpu_before) / len(latencies) * 1000
    p50, p99 = np.percentile(latencies, [50, 99]).tolist()
    return len(latencies) / elapsed, p50, p99, float(np.median(single_latencies)), cpu


async def _run_load(
    engine: Engine, name: str, requests: Iterator[InferenceRequest], clients: int, seconds: float
) -> tuple[Sequence[float], float]:
    """Return the latency of each response, in milliseconds, at least one for each client; and the elapsed seconds."""
    latencies: list[float] = []
    started = time.perf_counter()

    async def run_client() -> None:
        while True:
            sent = time.perf_counter()
            context = RequestContext(protocol=_REQUEST_ID, request_id=_REQUEST_ID)
            # The worker takes the request, so that the event loop does no work for it.
            await engine.handle(context, name, partial(next, requests), lambda _: None)
            latencies.append((time.perf_counter() - sent) * 1000)
            if time.perf_counter() - started >= seconds:
                return

    await asyncio.gather(*(run_client() for _ in range(clients)))
    return latencies, time.perf_counter() - started


def _input(spec: TensorSpec, image: bytes) -> InputTensor:
    if spec == IMAGE_INPUT:
        return BytesTensor(name=spec.name, shape=(1,), elements=[BinaryElement(image)])
    if spec.datatype is Datatype.BYTES:
        return BytesTensor(name=spec.name, shape=(1,), elements=[StringElement(SAMPLE_TEXT)])
    shape = [1 if side == -1 else side for side in spec.shape]
    return Tensor(name=spec.name, datatype=spec.datatype, data=np.zeros(shape, spec.datatype.dtype))
