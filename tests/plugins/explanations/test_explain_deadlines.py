"""Deadlines and limits of explanations, and the settings of a server for them."""

import asyncio
import threading
from typing import Any

import pytest

from app.core.assembly.discovery import discover
from app.core.assembly.service import Service
from app.core.engine.engine import Engine
from app.core.engine.scheduling.admission import QueueLimits
from app.core.plugins import registry
from app.core.settings.server import DEMO_MODELS
from app.plugins.explanations.explainer import explainers
from tasks.inference.error import ErrorKind
from tests.core.engine.engines import new_context
from tests.plugins.explanations.engines import SlowDetector, explain_slowly, request, running
from tests.support.models.scripted_model import EventRecorder
from tests.support.polling import wait_until_async
from tests.support.rejection import rejects


def waiting(proceed: threading.Event) -> SlowDetector:
    """Return a detector that waits until `proceed` is set."""
    return SlowDetector(lambda: proceed.wait(60))


def sleeping(seconds: float) -> SlowDetector:
    """Return a detector that takes some seconds for each batch of copies."""
    return SlowDetector(lambda: threading.Event().wait(seconds))


@pytest.mark.slow
def test_request_deadline_stops_sampling_in_time_for_the_response() -> None:
    observer = EventRecorder()
    with running(sleeping(0.5), observer) as engine:
        # The engine rejects a response after the deadline.
        _, explanations = asyncio.run(explain_slowly(engine, 2000, new_context(timeout=20)))
    (image_explanations,) = explanations
    assert 0 < image_explanations[0].samples < 2000
    assert [event.outcome for event in observer.events] == [None]


class EarlyTimers(asyncio.SelectorEventLoop):
    """An event loop whose timers fire 50 ms early; those of uvloop fire up to a millisecond early."""

    def call_at(self, when: float, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        return super().call_at(when - 0.05, *arguments, **options)


def test_queued_explanation_is_dropped_at_its_deadline() -> None:
    observer, proceed = EventRecorder(), threading.Event()
    model = waiting(proceed)

    async def run(engine: Engine) -> None:
        first = asyncio.ensure_future(explain_slowly(engine, context=new_context("first")))
        await asyncio.to_thread(model.called.wait, 30)
        with rejects(kind=ErrorKind.DEADLINE_EXCEEDED):
            await explain_slowly(engine, context=new_context("second", timeout=0.2))
        proceed.set()
        await first
        await wait_until_async(lambda: not engine.busy)

    with running(model, observer) as engine, asyncio.Runner(loop_factory=EarlyTimers) as runner:
        runner.run(run(engine))
    outcomes = {event.request_id: event.outcome for event in observer.events}
    assert outcomes == {"first": None, "second": ErrorKind.DEADLINE_EXCEEDED}


async def predict(engine: Engine, address: str) -> None:
    await engine.handle(new_context(address=address), "slow", lambda: request("slow"), lambda response: response)


def test_explanations_count_towards_the_limit_of_a_client() -> None:
    observer, proceed = EventRecorder(), threading.Event()
    model = waiting(proceed)

    async def run(engine: Engine) -> None:
        first = asyncio.ensure_future(explain_slowly(engine, context=new_context(address="10.0.0.1")))
        await asyncio.to_thread(model.called.wait, 30)
        for call in (explain_slowly(engine, context=new_context(address="10.0.0.1")), predict(engine, "10.0.0.1")):
            with rejects("1 requests or streams of your address in flight", kind=ErrorKind.OVERLOADED):
                await call
        other = asyncio.ensure_future(predict(engine, "10.0.0.2"))
        proceed.set()
        await asyncio.gather(first, other)
        await wait_until_async(lambda: not engine.busy)
        # A finished request frees its slot.
        await predict(engine, "10.0.0.1")

    with running(model, observer, QueueLimits(max_each_client=1)) as engine:
        asyncio.run(run(engine))


def test_server_has_the_requested_explain_workers_and_limits() -> None:
    settings = registry().settings(
        grpc=False, tensorflow_serving=False, explain_workers=3, max_explanation_samples=7, max_explanation_seconds=2.0
    )
    engine = Service(settings, lambda: discover(DEMO_MODELS / "detector")).engine
    try:
        assert (engine.limits.max_explanation_samples, engine.limits.max_explanation_seconds) == (7, 2.0)
        admission = engine.lane("explanation").admission
        for number in range(3):
            assert admission.has_idle_worker()
            admission.acquire(new_context(str(number)), "")
        assert not admission.has_idle_worker()
    finally:
        engine.close()


def test_view_gets_what_explains_each_model() -> None:
    with running() as engine:
        found = explainers(engine.registry)
    assert found == dict.fromkeys(("classifier", "detector", "segmenter", "failing", "slow"), "pixels")
