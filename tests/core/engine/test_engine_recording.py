"""The engine and its record sink: answers wait until they are recorded."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from tasks.inference.error import ErrorKind, InferenceError
from tests.core.engine.engines import name_of, new_context, request, run_with_engine, running
from tests.support.models.scripted_model import EventRecorder
from tests.support.polling import wait_until_async


class _WatchedFuture(Future[None]):
    """Record whether something waits for this future."""

    def __init__(self) -> None:
        super().__init__()
        self.awaited = False

    def add_done_callback(self, fn: Callable[[Future[None]], object]) -> None:
        super().add_done_callback(fn)
        self.awaited = True


class FakeRecordSink:
    """Record events, and let the test complete their futures."""

    def __init__(self) -> None:
        self.recorded: list[tuple[RequestContext, _WatchedFuture]] = []
        self.unavailable_reason = ""

    def record(self, event: RequestContext, /) -> Future[None]:
        future = _WatchedFuture()
        self.recorded.append((event, future))
        return future


def test_response_waits_until_it_is_recorded() -> None:
    sink, observer = FakeRecordSink(), EventRecorder()

    async def run(engine: Engine) -> None:
        call = asyncio.create_task(engine.handle(new_context(), "detector", request, name_of))
        await wait_until_async(lambda: bool(sink.recorded))
        event, future = sink.recorded[0]
        total = event.total
        assert event.outcome is None
        assert not call.done()
        assert not observer.events, "observers get no event before the response is recorded"
        future.set_result(None)
        assert await call == "detector"
        (observed,) = observer.events
        assert (observed.id, observed.outcome) == (event.id, None)
        assert observed.total > total, "the total includes the recording"

    run_with_engine(run, observer, record_sink=sink)


def test_recorded_request_is_released_after_its_response() -> None:
    sink = FakeRecordSink()
    references: list[weakref.ref[_WatchedFuture]] = []

    async def run(engine: Engine) -> None:
        for _ in range(5):
            call = asyncio.create_task(engine.handle(new_context(), "detector", request, name_of))
            await wait_until_async(lambda: bool(sink.recorded) and sink.recorded[0][1].awaited)
            event, future = sink.recorded.pop()
            references.append(weakref.ref(future))
            future.set_result(None)
            await call
            del event, future, call
        await wait_until_async(lambda: all(reference() is None for reference in references[:-1]))

    gc.disable()
    try:
        run_with_engine(run, record_sink=sink)
    finally:
        gc.enable()


def test_response_that_cannot_be_recorded_is_an_error() -> None:
    sink, observer = FakeRecordSink(), EventRecorder()

    async def run(engine: Engine) -> None:
        call = asyncio.create_task(engine.handle(new_context(), "detector", request, name_of))
        await wait_until_async(lambda: bool(sink.recorded))
        sink.recorded[0][1].set_exception(InferenceError(ErrorKind.MODEL_NOT_READY, "The disk is full"))
        with pytest.raises(InferenceError, match="disk is full"):
            await call
        assert [event.outcome for event in observer.events] == [ErrorKind.MODEL_NOT_READY]

    run_with_engine(run, observer, record_sink=sink)
    assert [(event.outcome, event.error) for event in observer.events] == [
        (ErrorKind.MODEL_NOT_READY, "The disk is full")
    ], "observers get the same error as the client"


def test_disconnect_does_not_cancel_the_recording() -> None:
    sink, observer = FakeRecordSink(), EventRecorder()

    async def run(engine: Engine) -> None:
        call = asyncio.create_task(engine.handle(new_context(), "detector", request, name_of))
        await wait_until_async(lambda: bool(sink.recorded) and sink.recorded[0][1].awaited)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not sink.recorded[0][1].cancelled()
        sink.recorded[0][1].set_result(None)

    run_with_engine(run, observer, record_sink=sink)
    assert [event.outcome for event in observer.events] == [None]


def test_engine_is_not_ready_if_the_record_sink_rejects() -> None:
    sink = FakeRecordSink()
    with running(record_sink=sink) as engine:
        asyncio.run(engine.repository.unload("oriented"))
        asyncio.run(engine.repository.unload("failing"))
        assert engine.not_ready_reason == ""
        sink.unavailable_reason = "The disk is full"
        assert engine.not_ready_reason == "The disk is full"
        with pytest.raises(InferenceError, match="disk is full"):
            engine.ready_model("detector")


def test_rejection_is_recorded_without_delay() -> None:
    sink = FakeRecordSink()

    async def run(engine: Engine) -> None:
        with pytest.raises(InferenceError, match="not known"):
            await engine.handle(new_context(), "missing", lambda: request("missing"), name_of)

    run_with_engine(run, record_sink=sink)
    assert [event.outcome for event, _ in sink.recorded] == [ErrorKind.MODEL_NOT_FOUND]
