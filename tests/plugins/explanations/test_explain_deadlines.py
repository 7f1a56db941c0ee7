"""Deadlines and limits of explanations."""

import asyncio
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.core.engine.engine import Engine
from app.core.engine.models.registry import Registry
from app.core.engine.models.repository import Repository
from app.core.engine.models.servable import Servable
from app.core.engine.request_context import RequestContext
from app.core.engine.scheduling.admission import QueueLimits
from app.core.settings.model import ModelSettings, ModelSource
from app.core.wire.bytes_elements import BinaryElement
from app.plugins.explanations import lane
from app.plugins.explanations.lane import Explanations
from app.plugins.explanations.request import explain_request
from metadata.model import ModelMetadata
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse
from tasks.inference.tensor import BytesTensor
from tasks.object_detection import DetectionInput, Detections, ObjectDetection
from tasks.task import TaskType
from tests.support.data.images import encode_image, rectangle
from tests.support.models.fake_models import LABELS, detect
from tests.support.models.scripted_model import EventRecorder
from tests.support.polling import wait_until_async


class SlowDetector:
    """Detect after a delay or when the test proceeds."""

    def __init__(self, seconds: float = 0, proceed: threading.Event | None = None) -> None:
        self._seconds = seconds
        self._proceed = proceed
        self.called = threading.Event()

    def __call__(self, inputs: Sequence[DetectionInput], /) -> Sequence[Detections]:
        self.called.set()
        if self._proceed is not None:
            assert self._proceed.wait(60)
        threading.Event().wait(self._seconds)
        return detect(inputs)


def load_slow(model: SlowDetector) -> Servable:
    description = ModelMetadata(
        task_type=TaskType.OBJECT_DETECTION,
        platform="stand-in",
        layout="none",
        labels=LABELS,
        inputs=(),
        outputs=(),
        facts=(),
    )
    return Servable(ObjectDetection(), model, description, {})


@contextmanager
def running(model: SlowDetector, observer: EventRecorder, bounds: QueueLimits | None = None) -> Generator[Engine]:
    settings = ModelSettings(task_type=TaskType.OBJECT_DETECTION)
    source = ModelSource(name="slow", version="7", folder=Path("slow"), settings=settings)

    def load(_: ModelSource) -> Servable:
        return load_slow(model)

    registry = Registry([source])
    registry.load(source, load)
    engine = Engine(Repository(registry, lambda: [source], load), [observer], Limits(), 1, bounds or QueueLimits())
    try:
        yield engine
    finally:
        engine.close()


def request_info(name: str = "a", timeout: float | None = None, address: str = "") -> RequestContext:
    return RequestContext(protocol="test", request_id=name, response_headers={}, timeout=timeout, address=address)


def request(samples: int = 60) -> InferenceRequest:
    tensor = BytesTensor(name="a", shape=(1,), elements=[BinaryElement(encode_image(rectangle()))])
    return InferenceRequest(id="", model_name="slow", inputs=(tensor,), parameters={"samples": samples})


def response_and_explanations(
    response: InferenceResponse, explanations: Explanations
) -> tuple[InferenceResponse, Explanations]:
    return response, explanations


def test_time_limit_stops_sampling() -> None:
    with running(SlowDetector(0.05), EventRecorder()) as engine:
        explained_request = explain_request(
            engine.registry.find("slow").ready_servable(), request(2000), Limits(), lambda: True, 1.0
        )
    ((objects,),) = explained_request.explanations
    assert 0 < objects[0].samples < 2000


@pytest.mark.slow
def test_request_deadline_stops_sampling_in_time_for_the_response() -> None:
    observer = EventRecorder()
    with running(SlowDetector(0.5), observer) as engine:
        # The engine refuses a response after the deadline.
        _, explanations = asyncio.run(
            lane.explain(engine, request_info(timeout=20), "slow", lambda: request(2000), response_and_explanations)
        )
    ((image_explanations,),) = explanations
    assert 0 < image_explanations[0].samples < 2000
    assert [event.outcome for event in observer.events] == [None]


def test_explanation_after_its_deadline_is_deadline_exceeded() -> None:
    observer, proceed = EventRecorder(), threading.Event()

    async def run(engine: Engine) -> None:
        with pytest.raises(InferenceError) as caught:
            await lane.explain(engine, request_info(timeout=0.1), "slow", request, response_and_explanations)
        assert caught.value.kind is ErrorKind.DEADLINE_EXCEEDED
        proceed.set()
        await wait_until_async(lambda: not engine.busy)

    with running(SlowDetector(proceed=proceed), observer) as engine:
        asyncio.run(run(engine))
    assert [event.outcome for event in observer.events] == [ErrorKind.DEADLINE_EXCEEDED]


def test_queued_explanation_is_dropped_at_its_deadline() -> None:
    observer, proceed = EventRecorder(), threading.Event()
    model = SlowDetector(proceed=proceed)

    async def run(engine: Engine) -> None:
        first = asyncio.ensure_future(
            lane.explain(engine, request_info("first"), "slow", request, response_and_explanations)
        )
        await asyncio.to_thread(model.called.wait, 30)
        with pytest.raises(InferenceError) as caught:
            await lane.explain(engine, request_info("second", timeout=0.1), "slow", request, response_and_explanations)
        assert caught.value.kind is ErrorKind.DEADLINE_EXCEEDED
        proceed.set()
        await first
        await wait_until_async(lambda: not engine.busy)

    with running(model, observer) as engine:
        asyncio.run(run(engine))
    outcomes = {event.request_id: event.outcome for event in observer.events}
    assert outcomes == {"first": None, "second": ErrorKind.DEADLINE_EXCEEDED}


class EarlyTimers(asyncio.SelectorEventLoop):
    """An event loop whose timers fire 50 ms early; those of uvloop fire up to a millisecond early."""

    def call_at(self, when: float, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        return super().call_at(when - 0.05, *arguments, **options)


def test_deadline_timer_that_fires_early_is_not_a_cancellation() -> None:
    observer, proceed = EventRecorder(), threading.Event()
    model = SlowDetector(proceed=proceed)

    async def run(engine: Engine) -> None:
        first = asyncio.ensure_future(
            lane.explain(engine, request_info("first"), "slow", request, response_and_explanations)
        )
        await asyncio.to_thread(model.called.wait, 30)
        with pytest.raises(InferenceError) as caught:
            await lane.explain(engine, request_info("queued", timeout=0.2), "slow", request, response_and_explanations)
        assert caught.value.kind is ErrorKind.DEADLINE_EXCEEDED
        proceed.set()
        await first
        await wait_until_async(lambda: not engine.busy)

    with running(model, observer) as engine, asyncio.Runner(loop_factory=EarlyTimers) as runner:
        runner.run(run(engine))
    outcomes = {event.request_id: event.outcome for event in observer.events}
    assert outcomes == {"first": None, "queued": ErrorKind.DEADLINE_EXCEEDED}


@pytest.mark.parametrize(
    ("timeout", "kind"), [(float("nan"), ErrorKind.INVALID_REQUEST), (0, ErrorKind.DEADLINE_EXCEEDED)]
)
def test_invalid_or_expired_timeout_of_an_explanation_is_refused(timeout: float, kind: ErrorKind) -> None:
    observer = EventRecorder()
    with running(SlowDetector(), observer) as engine:
        with pytest.raises(InferenceError) as caught:
            asyncio.run(lane.explain(engine, request_info(timeout=timeout), "slow", request, response_and_explanations))
        assert not engine.busy
    assert caught.value.kind is kind
    assert [(event.outcome, event.explanation) for event in observer.events] == [(kind, True)]


def test_explanation_over_the_limit_is_refused_with_retry_after() -> None:
    observer, proceed = EventRecorder(), threading.Event()
    model = SlowDetector(proceed=proceed)

    async def run(engine: Engine) -> None:
        others = [
            asyncio.ensure_future(lane.explain(engine, request_info(), "slow", request, response_and_explanations))
            for _ in range(3)
        ]
        await asyncio.to_thread(model.called.wait, 30)
        late = request_info("late")
        with pytest.raises(InferenceError, match="3 explanations in flight") as caught:
            await lane.explain(engine, late, "slow", request, response_and_explanations)
        assert caught.value.kind is ErrorKind.OVERLOADED
        assert (caught.value.retry_after or 0) >= 1
        proceed.set()
        await asyncio.gather(*others)

    with running(model, observer) as engine:
        asyncio.run(run(engine))


def test_explanations_count_towards_the_limit_of_a_client() -> None:
    observer, proceed = EventRecorder(), threading.Event()
    model = SlowDetector(proceed=proceed)

    async def run(engine: Engine) -> None:
        first = asyncio.ensure_future(
            lane.explain(engine, request_info(address="10.0.0.1"), "slow", request, response_and_explanations)
        )
        await asyncio.to_thread(model.called.wait, 30)
        for call in (
            lane.explain(engine, request_info(address="10.0.0.1"), "slow", request, response_and_explanations),
            engine.handle(request_info(address="10.0.0.1"), "slow", request, lambda response: response),
        ):
            with pytest.raises(InferenceError, match="1 requests or streams of your address in flight") as caught:
                await call
            assert caught.value.kind is ErrorKind.OVERLOADED
        other = asyncio.ensure_future(
            engine.handle(request_info(address="10.0.0.2"), "slow", request, lambda response: response)
        )
        proceed.set()
        await asyncio.gather(first, other)
        await wait_until_async(lambda: not engine.busy)
        # A finished request frees its slot.
        await engine.handle(request_info(address="10.0.0.1"), "slow", request, lambda response: response)

    with running(model, observer, QueueLimits(max_each_client=1)) as engine:
        asyncio.run(run(engine))
