"""Measure how fast a model is with different settings on this machine."""

import asyncio
import itertools
import statistics
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


class Measurement(msgspec.Struct, frozen=True):
    """The measurements of a candidate, in milliseconds.

    Attributes:
        rate: responses a second under full load.
        p50: median latency under that load.
        p99: 99th percentile of that latency.
        single_latency: median latency of a single request.
        cpu: CPU time of the process for each response.
        rounds: the measurements whose medians these are, for comparisons of the same round.
    """

    candidate: Candidate
    rate: float
    p50: float
    p99: float
    single_latency: float
    cpu: float
    rounds: "tuple[Measurement, ...]" = ()


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
    runs = [_Run(candidate, source, images, limits) for candidate, source in candidates]
    for run in runs * rounds:
        run.measure(workers, seconds)
        on_measured()
    return [run.median() for run in runs]


def best_measurement(measurements: Sequence[Measurement]) -> Measurement:
    """Return the simplest measurement whose rate is as good as the best one's. The simplest comes first.

    The best one must be better by 5 % in the median of the rounds, and in each of them.
    """
    best = max(measurements, key=lambda result: result.rate)

    def is_as_good(result: Measurement) -> bool:
        pairs = zip(best.rounds or (best,), result.rounds or (result,), strict=False)
        gains = [best_round.rate / result_round.rate for best_round, result_round in pairs]
        return result is best or statistics.median(gains) < _MIN_GAIN or min(gains) <= 1

    return next(filter(is_as_good, measurements))


class _Run:
    """One loaded candidate, and its measurements."""

    def __init__(self, candidate: Candidate, source: ModelSource, images: Sequence[bytes], limits: Limits) -> None:
        # The load must not meet a limit of the model's queue.
        settings = msgspec.structs.replace(source.settings, max_waiting=None)
        self.candidate, self._limits = candidate, limits
        self.source = msgspec.structs.replace(source, settings=settings)
        self.servable = load(source)
        inputs = [tuple(_input(spec, image) for spec in self.servable.inputs) for image in images]
        requests = [InferenceRequest(id=_REQUEST_ID, model_name=source.name, inputs=values) for values in inputs]
        self.servable.predict(requests[0], limits)
        self.requests = itertools.cycle(requests)
        self.measured: list[Measurement] = []

    def measure(self, workers: int, seconds: float) -> None:
        registry = Registry([self.source])
        registry.load(self.source, lambda _: self.servable)
        repository = Repository(registry, lambda: [self.source], lambda _: self.servable)
        engine = Engine(repository, self._limits, workers, QueueLimits(max_waiting=10_000))
        with closing(engine):
            measuring = _measure(engine, self.source, self.requests, self.candidate, workers, seconds)
            self.measured.append(asyncio.run(measuring))

    def median(self) -> Measurement:
        rows = [(result.rate, result.p50, result.p99, result.single_latency, result.cpu) for result in self.measured]
        return Measurement(self.candidate, *np.median(rows, axis=0).tolist(), rounds=tuple(self.measured))


async def _measure(
    engine: Engine,
    source: ModelSource,
    requests: Iterator[InferenceRequest],
    candidate: Candidate,
    workers: int,
    seconds: float,
) -> Measurement:
    name, batch = source.name, source.settings.batching.max_size
    single_latencies, _ = await _run_load(engine, name, requests, 1, seconds / 4)
    cpu_before = time.process_time()
    # Enough requests to fill every worker's batch while the next batches are collected.
    latencies, elapsed = await _run_load(engine, name, requests, 2 * workers * batch, seconds)
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
