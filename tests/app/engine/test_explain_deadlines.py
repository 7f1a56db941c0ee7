"""Explanations keep to the time that their request has, and say when to come again."""

import asyncio
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.engine.admission import Bounds
from app.engine.answering import Explanations
from app.engine.description import ModelDescription
from app.engine.engine import Engine
from app.engine.events import RequestInfo
from app.engine.explain import explained
from app.engine.registry import Registry
from app.engine.repository import Repository
from app.engine.servable import BoundServable, Servable
from app.protocols.bytes_elements import BinaryElement
from app.settings.model import ModelSettings, ModelSource
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.response import InferenceResponse
from tasks.exchange.tensor import BytesTensor
from tasks.object_detection import DetectionInput, Detections, ObjectDetection
from tasks.task import TaskType
from tests.support.pictures import encoded, rectangle
from tests.support.polling import wait_until_async
from tests.support.speaker import Seen
from tests.support.stand_ins import LABELS, detect


class Slow:
    """The detector, each of whose calls takes as long as it is told."""

    def __init__(self, seconds: float = 0, held: threading.Event | None = None) -> None:
        self._seconds = seconds
        self._held = held
        self.called = threading.Event()

    def __call__(self, inputs: Sequence[DetectionInput], /) -> Sequence[Detections]:
        self.called.set()
        if self._held is not None:
            assert self._held.wait(60)
        threading.Event().wait(self._seconds)
        return detect(inputs)


def load_slow(model: Slow) -> Servable:
    description = ModelDescription(
        task_type=TaskType.OBJECT_DETECTION,
        platform="stand-in",
        layout="none",
        labels=LABELS,
        inputs=(),
        outputs=(),
        facts=(),
    )
    return BoundServable(ObjectDetection(), model, description, {})


@contextmanager
def running(model: Slow, seen: Seen, bounds: Bounds | None = None) -> Generator[Engine]:
    settings = ModelSettings(task_type=TaskType.OBJECT_DETECTION)
    source = ModelSource(name="slow", version="7", folder=Path("slow"), settings=settings)

    def load(_: ModelSource) -> Servable:
        return load_slow(model)

    registry = Registry([source])
    registry.load(source, load)
    engine = Engine(Repository(registry, lambda: [source], load), [seen], Limits(), 1, bounds or Bounds())
    try:
        yield engine
    finally:
        engine.close()


def caller(name: str = "a", timeout: float | None = None, address: str = "") -> RequestInfo:
    return RequestInfo(protocol="test", request_id=name, returned={}, timeout=timeout, address=address)


def request(samples: int = 60) -> InferenceRequest:
    tensor = BytesTensor(name="a", shape=(1,), elements=[BinaryElement(encoded(rectangle()))])
    return InferenceRequest(id="", model_name="slow", inputs=(tensor,), parameters={"samples": samples})


def both(response: InferenceResponse, explanations: Explanations) -> tuple[InferenceResponse, Explanations]:
    return response, explanations


def test_samples_end_before_the_time_is_over() -> None:
    with running(Slow(0.05), Seen()) as engine:
        found = explained(engine.registry.find("slow").ready_servable(), request(2000), Limits(), lambda: True, 1.0)
    ((objects,),) = found.explanations
    assert 0 < objects[0].samples < 2000


@pytest.mark.slow
def test_samples_end_in_time_for_the_answer() -> None:
    seen = Seen()
    with running(Slow(0.5), seen) as engine:
        # The engine itself refuses an answer that comes later.
        _, explanations = asyncio.run(engine.explain(caller(timeout=20), "slow", lambda: request(2000), both))
    ((found,),) = explanations
    assert 0 < found[0].samples < 2000
    assert [event.outcome for event in seen.events] == [None]


def test_an_explanation_that_comes_too_late_is_given_up() -> None:
    seen, held = Seen(), threading.Event()

    async def run(engine: Engine) -> None:
        with pytest.raises(InferenceError) as caught:
            await engine.explain(caller(timeout=0.1), "slow", request, both)
        assert caught.value.kind is ErrorKind.DEADLINE_EXCEEDED
        held.set()
        await wait_until_async(lambda: not engine.busy)

    with running(Slow(held=held), seen) as engine:
        asyncio.run(run(engine))
    assert [event.outcome for event in seen.events] == [ErrorKind.DEADLINE_EXCEEDED]


def test_one_that_waits_for_its_turn_is_dropped_in_time() -> None:
    seen, held = Seen(), threading.Event()
    model = Slow(held=held)

    async def run(engine: Engine) -> None:
        first = asyncio.ensure_future(engine.explain(caller("first"), "slow", request, both))
        await asyncio.to_thread(model.called.wait, 30)
        with pytest.raises(InferenceError) as caught:
            await engine.explain(caller("second", timeout=0.1), "slow", request, both)
        assert caught.value.kind is ErrorKind.DEADLINE_EXCEEDED
        held.set()
        await first
        await wait_until_async(lambda: not engine.busy)

    with running(model, seen) as engine:
        asyncio.run(run(engine))
    outcomes = {event.caller.request_id: event.outcome for event in seen.events}
    assert outcomes == {"first": None, "second": ErrorKind.DEADLINE_EXCEEDED}


class EarlyTimers(asyncio.SelectorEventLoop):
    """An event loop whose timers fire 50 ms early; those of uvloop fire up to a millisecond early."""

    def call_at(self, when: float, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        return super().call_at(when - 0.05, *arguments, **options)


def test_explain_deadline_that_fires_early_is_no_cancellation() -> None:
    seen, held = Seen(), threading.Event()
    model = Slow(held=held)

    async def run(engine: Engine) -> None:
        first = asyncio.ensure_future(engine.explain(caller("first"), "slow", request, both))
        await asyncio.to_thread(model.called.wait, 30)
        with pytest.raises(InferenceError) as caught:
            await engine.explain(caller("queued", timeout=0.2), "slow", request, both)
        assert caught.value.kind is ErrorKind.DEADLINE_EXCEEDED
        held.set()
        await first
        await wait_until_async(lambda: not engine.busy)

    with running(model, seen) as engine, asyncio.Runner(loop_factory=EarlyTimers) as runner:
        runner.run(run(engine))
    outcomes = {event.caller.request_id: event.outcome for event in seen.events}
    assert outcomes == {"first": None, "queued": ErrorKind.DEADLINE_EXCEEDED}


@pytest.mark.parametrize(
    ("timeout", "kind"), [(float("nan"), ErrorKind.INVALID_REQUEST), (0, ErrorKind.DEADLINE_EXCEEDED)]
)
def test_a_time_that_is_none_or_over_is_refused(timeout: float, kind: ErrorKind) -> None:
    seen = Seen()
    with running(Slow(), seen) as engine:
        with pytest.raises(InferenceError) as caught:
            asyncio.run(engine.explain(caller(timeout=timeout), "slow", request, both))
        assert not engine.busy
    assert caught.value.kind is kind
    assert [(event.outcome, event.explanation) for event in seen.events] == [(kind, True)]


def test_whoever_finds_no_place_is_told_when_to_come_again() -> None:
    seen, held = Seen(), threading.Event()
    model = Slow(held=held)

    async def run(engine: Engine) -> None:
        others = [asyncio.ensure_future(engine.explain(caller(), "slow", request, both)) for _ in range(3)]
        await asyncio.to_thread(model.called.wait, 30)
        sender = caller("late")
        with pytest.raises(InferenceError, match="3 explanations in flight") as caught:
            await engine.explain(sender, "slow", request, both)
        assert caught.value.kind is ErrorKind.OVERLOADED
        assert int(sender.returned["retry-after"]) >= 1
        held.set()
        await asyncio.gather(*others)

    with running(model, seen) as engine:
        asyncio.run(run(engine))


def test_explanations_count_among_what_a_client_has_in_hand() -> None:
    seen, held = Seen(), threading.Event()
    model = Slow(held=held)

    async def run(engine: Engine) -> None:
        first = asyncio.ensure_future(engine.explain(caller(address="10.0.0.1"), "slow", request, both))
        await asyncio.to_thread(model.called.wait, 30)
        for same in (
            engine.explain(caller(address="10.0.0.1"), "slow", request, both),
            engine.exchange(caller(address="10.0.0.1"), "slow", request, lambda each: each),
        ):
            with pytest.raises(InferenceError, match="1 requests or streams of your address in flight") as caught:
                await same
            assert caught.value.kind is ErrorKind.OVERLOADED
        other = asyncio.ensure_future(engine.exchange(caller(address="10.0.0.2"), "slow", request, lambda each: each))
        held.set()
        await asyncio.gather(first, other)
        await wait_until_async(lambda: not engine.busy)
        # What has ended gives its place back.
        await engine.exchange(caller(address="10.0.0.1"), "slow", request, lambda each: each)

    with running(model, seen, Bounds(max_each_client=1)) as engine:
        asyncio.run(run(engine))
