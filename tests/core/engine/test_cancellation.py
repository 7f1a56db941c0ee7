"""Cancellation, deadlines and disconnects end the work for a request."""

import asyncio
import threading
import time

import msgspec
import pytest

from app.core.engine.cancellation import CancellationToken, cancellation_scope, raise_if_cancelled
from app.core.engine.engine import Engine
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.request import InferenceRequest
from tests.core.engine.engines import name_of, new_context, request, run_with_engine
from tests.support.models.scripted_model import EventRecorder
from tests.support.polling import wait_until_async
from tests.support.rejection import rejects


def test_token_ends_when_cancelled_expired_or_past_its_deadline() -> None:
    assert CancellationToken().cancellation is None
    assert CancellationToken(time.monotonic() + 60).cancellation is None
    now = time.monotonic()
    past_deadline, cancelled, expired = CancellationToken(now - 1), CancellationToken(), CancellationToken(now + 60)
    past_deadline.cancel()
    cancelled.cancel()
    expired.expire()
    kinds = [token.cancellation.kind for token in (past_deadline, cancelled, expired) if token.cancellation]
    assert kinds == [ErrorKind.DEADLINE_EXCEEDED, ErrorKind.CANCELLED, ErrorKind.DEADLINE_EXCEEDED]


def test_thread_checks_the_token_of_the_innermost_scope() -> None:
    raise_if_cancelled()
    outer, inner = CancellationToken(), CancellationToken()
    inner.cancel()
    with cancellation_scope(outer):
        with cancellation_scope(inner), pytest.raises(InferenceError, match="client disconnected"):
            raise_if_cancelled()
        raise_if_cancelled()
    raise_if_cancelled()


class BlockedDecoder:
    """Decode requests when `released` is set."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.count = 0

    def decode(self) -> InferenceRequest:
        self.count += 1
        assert self.released.wait(60)
        return request()


def outcomes(observer: EventRecorder) -> list[ErrorKind | None]:
    return sorted((event.outcome for event in observer.events), key=str)


@pytest.mark.parametrize(("timeout", "kind"), [(0.5, ErrorKind.DEADLINE_EXCEEDED), (None, ErrorKind.CANCELLED)])
def test_request_that_ends_during_decoding_is_answered_and_skips_the_model(
    timeout: float | None, kind: ErrorKind
) -> None:
    observer, decoder = EventRecorder(), BlockedDecoder()

    async def run(engine: Engine) -> None:
        disconnect = asyncio.Event()
        info = new_context(timeout=timeout, disconnected=disconnect.wait)
        call = asyncio.create_task(engine.handle(info, "detector", decoder.decode, name_of))
        await wait_until_async(lambda: decoder.count == 1)
        if timeout is None:
            disconnect.set()
        with rejects(kind=kind):
            await call
        assert engine.admission.in_flight == 1
        decoder.released.set()
        await wait_until_async(lambda: engine.admission.in_flight == 0)

    run_with_engine(run, observer, workers=1)
    (event,) = observer.events
    assert (event.outcome, event.model_ns) == (kind, 0)


def test_shorten_never_extends_the_deadline() -> None:
    token, now = CancellationToken(), time.monotonic()
    calls: list[float | None] = []
    token.on_shortened = lambda: calls.append(token.deadline)
    for deadline in (now + 60, now + 70, now - 1):
        token.shorten(deadline)
    assert calls == [now + 60, now - 1]
    assert token.cancellation is not None


def test_timeout_in_the_body_ends_the_request_while_the_worker_is_busy() -> None:
    observer, released = EventRecorder(), threading.Event()

    def encode(_: object) -> str:
        assert released.wait(60)
        return "late"

    async def run(engine: Engine) -> None:
        request_with_timeout = msgspec.structs.replace(request(), timeout=0.5)
        with rejects(kind=ErrorKind.DEADLINE_EXCEEDED):
            await engine.handle(new_context(timeout=3600), "detector", lambda: request_with_timeout, encode)
        assert engine.admission.in_flight == 1
        released.set()
        await wait_until_async(lambda: engine.admission.in_flight == 0)

    run_with_engine(run, observer, workers=1)
    assert outcomes(observer) == [ErrorKind.DEADLINE_EXCEEDED]


@pytest.mark.parametrize("reason", ["time", "gone", "cancelled"])
def test_queued_request_is_dropped_without_a_worker(reason: str) -> None:
    observer, decoder, queued = EventRecorder(), BlockedDecoder(), BlockedDecoder()
    expected = ErrorKind.DEADLINE_EXCEEDED if reason == "time" else ErrorKind.CANCELLED

    async def run(engine: Engine) -> None:
        disconnect = asyncio.Event()
        first = asyncio.create_task(engine.handle(new_context(), "detector", decoder.decode, name_of))
        await wait_until_async(lambda: decoder.count == 1)
        info = new_context(
            timeout=0.05 if reason == "time" else None, disconnected=disconnect.wait if reason == "gone" else None
        )
        second = asyncio.create_task(engine.handle(info, "detector", queued.decode, name_of))
        await wait_until_async(lambda: engine.admission.in_flight == 2)
        if reason == "gone":
            disconnect.set()
        if reason == "cancelled":
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
        else:
            with rejects(kind=expected):
                await second
        assert engine.admission.in_flight == 1
        decoder.released.set()
        assert await first == "detector"

    run_with_engine(run, observer, workers=1)
    assert queued.count == 0
    assert outcomes(observer) == [None, expected]


def test_request_in_time_is_answered_and_leaves_no_tasks() -> None:
    observer = EventRecorder()

    async def run(engine: Engine) -> None:
        for _ in range(20):
            context = new_context(timeout=60, disconnected=asyncio.Event().wait)
            assert await engine.handle(context, "detector", request, name_of) == "detector"
        # A request of more than 50 ms is watched by a task, which is cancelled.
        await wait_until_async(lambda: len(asyncio.all_tasks()) == 1)

    run_with_engine(run, observer)
    assert [event.outcome for event in observer.events] == [None] * 20


@pytest.mark.parametrize("first", ["time", "cancelled"])
def test_request_cancelled_twice_at_once_is_observed_once(first: str) -> None:
    observer, decoder = EventRecorder(), BlockedDecoder()

    async def run(engine: Engine) -> None:
        watching, disconnect = asyncio.Event(), asyncio.Event()

        async def wait_disconnected() -> None:
            watching.set()
            await disconnect.wait()
            if first == "time":
                # Cancel after the disconnect is known and before the call continues.
                asyncio.get_running_loop().call_soon(second.cancel)

        busy = asyncio.create_task(engine.handle(new_context(), "detector", decoder.decode, name_of))
        await wait_until_async(lambda: decoder.count == 1)
        context = new_context(disconnected=wait_disconnected)
        second = asyncio.create_task(engine.handle(context, "detector", request, name_of))
        await watching.wait()
        disconnect.set()
        if first == "cancelled":
            second.cancel()
        with pytest.raises((asyncio.CancelledError, InferenceError)):
            await second
        await wait_until_async(lambda: engine.admission.in_flight == 1)
        decoder.released.set()
        await busy

    run_with_engine(run, observer, workers=1)
    assert outcomes(observer) == [None, ErrorKind.CANCELLED]


def test_request_cancelled_during_the_drain_is_not_ready() -> None:
    observer, decoder = EventRecorder(), BlockedDecoder()

    async def run(engine: Engine) -> None:
        calls = [
            asyncio.create_task(
                engine.handle(new_context(disconnected=asyncio.Event().wait), "detector", decoder.decode, name_of)
            )
            for _ in range(2)
        ]
        await wait_until_async(lambda: decoder.count == 1 and engine.admission.in_flight == 2)
        engine.start_drain()
        for call in calls:
            call.cancel()
        for call in calls:
            with pytest.raises(InferenceError, match="stopping"):
                await call
        decoder.released.set()
        await wait_until_async(lambda: engine.admission.in_flight == 0)

    run_with_engine(run, observer, workers=1)
    assert decoder.count == 1
    assert outcomes(observer) == [ErrorKind.MODEL_NOT_READY] * 2
