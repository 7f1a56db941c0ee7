"""Work ends when nobody waits for it any more."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from app.engine.engine import Engine
from app.engine.events import RequestInfo
from app.engine.interest import CancellationToken, check_interest, on_behalf_of
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.request import InferenceRequest
from tests.app.engine.test_engine import Seen, name_of, request, running
from tests.support.polling import wait_until_async


def test_interest_is_lost_by_leaving_and_by_time() -> None:
    assert CancellationToken().loss is None
    assert CancellationToken(time.monotonic() + 60).loss is None
    late, left, expired = (
        CancellationToken(time.monotonic() - 1),
        CancellationToken(),
        CancellationToken(time.monotonic() + 60),
    )
    left.leave()
    expired.expire()
    kinds = [each.loss.kind for each in (late, left, expired) if each.loss]
    assert kinds == [ErrorKind.DEADLINE_EXCEEDED, ErrorKind.CANCELLED, ErrorKind.DEADLINE_EXCEEDED]


def test_a_thread_asks_on_whose_behalf_it_works() -> None:
    check_interest()
    outer, inner = CancellationToken(), CancellationToken()
    inner.leave()
    with on_behalf_of(outer):
        with on_behalf_of(inner), pytest.raises(InferenceError, match="client disconnected"):
            check_interest()
        check_interest()
    check_interest()


class Held:
    """Requests that are decoded when they are let."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.let = threading.Event()
        self.count = 0

    def decode(self) -> InferenceRequest:
        self.count += 1
        self.begun.release()
        assert self.let.wait(60)
        return request()


def caller(timeout: float | None = None, gone: Callable[[], Awaitable[None]] | None = None) -> RequestInfo:
    return RequestInfo(protocol="test", request_id="1", returned={}, timeout=timeout, gone=gone)


def outcomes(seen: Seen) -> list[ErrorKind | None]:
    return sorted((event.outcome for event in seen.events), key=str)


def test_a_request_whose_time_is_over_is_answered_so_and_the_worker_stops_at_its_next_step() -> None:
    seen, held = Seen(), Held()

    async def run(engine: Engine) -> None:
        with pytest.raises(InferenceError) as caught:
            await engine.exchange(caller(timeout=0.5), "detector", held.decode, name_of)
        assert caught.value.kind is ErrorKind.DEADLINE_EXCEEDED
        assert engine.in_flight == 1
        held.let.set()
        await wait_until_async(lambda: engine.in_flight == 0)

    with running(seen, workers=1) as engine:
        asyncio.run(run(engine))
    (event,) = seen.events
    assert event.outcome is ErrorKind.DEADLINE_EXCEEDED
    assert event.timings.model == 0


def test_a_deadline_is_only_moved_forward() -> None:
    interest, now = CancellationToken(), time.monotonic()
    calls: list[float | None] = []
    interest.on_shortened = lambda: calls.append(interest.deadline)
    for deadline in (now + 60, now + 70, now - 1):
        interest.shorten(deadline)
    assert calls == [now + 60, now - 1]
    assert interest.loss is not None


@pytest.mark.parametrize("header", [None, 3600.0])
def test_a_timeout_in_the_body_is_answered_while_the_worker_is_busy(header: float | None) -> None:
    seen, let = Seen(), threading.Event()

    def encode(_: object) -> str:
        assert let.wait(60)
        return "late"

    async def run(engine: Engine) -> None:
        given = msgspec.structs.replace(request(), timeout=0.2)
        with pytest.raises(InferenceError) as caught:
            await engine.exchange(caller(timeout=header), "detector", lambda: given, encode)
        assert caught.value.kind is ErrorKind.DEADLINE_EXCEEDED
        assert engine.in_flight == 1
        let.set()
        await wait_until_async(lambda: engine.in_flight == 0)

    with running(seen, workers=1) as engine:
        asyncio.run(run(engine))
    assert outcomes(seen) == [ErrorKind.DEADLINE_EXCEEDED]


@pytest.mark.parametrize("how", ["time", "gone", "cancelled"])
def test_a_request_that_waits_is_dropped_without_a_worker(how: str) -> None:
    seen, held, waiting = Seen(), Held(), Held()
    expected = ErrorKind.DEADLINE_EXCEEDED if how == "time" else ErrorKind.CANCELLED

    async def run(engine: Engine) -> None:
        left = asyncio.Event()

        async def gone() -> None:
            await left.wait()

        first = asyncio.create_task(engine.exchange(caller(), "detector", held.decode, name_of))
        await wait_until_async(lambda: held.count == 1)
        sender = caller(timeout=0.05 if how == "time" else None, gone=gone if how == "gone" else None)
        second = asyncio.create_task(engine.exchange(sender, "detector", waiting.decode, name_of))
        await wait_until_async(lambda: engine.in_flight == 2)
        if how == "gone":
            left.set()
        if how == "cancelled":
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
        else:
            with pytest.raises(InferenceError) as caught:
                await second
            assert caught.value.kind is expected
        assert engine.in_flight == 1
        held.let.set()
        assert await first == "detector"

    with running(seen, workers=1) as engine:
        asyncio.run(run(engine))
    assert waiting.count == 0
    assert outcomes(seen) == [None, expected]


def test_work_that_is_under_way_when_its_sender_leaves_does_not_reach_the_model() -> None:
    seen, held = Seen(), Held()

    async def run(engine: Engine) -> None:
        left = asyncio.Event()

        async def gone() -> None:
            await left.wait()

        call = asyncio.create_task(engine.exchange(caller(gone=gone), "detector", held.decode, name_of))
        await wait_until_async(lambda: held.count == 1)
        left.set()
        with pytest.raises(InferenceError, match="client disconnected"):
            await call
        held.let.set()
        await wait_until_async(lambda: engine.in_flight == 0)

    with running(seen, workers=1) as engine:
        asyncio.run(run(engine))
    assert [event.outcome for event in seen.events] == [ErrorKind.CANCELLED]
    assert seen.events[0].timings.model == 0


def test_an_answer_in_time_is_not_disturbed() -> None:
    seen = Seen()

    async def forever() -> None:
        await asyncio.Event().wait()

    async def run(engine: Engine) -> None:
        for _ in range(20):
            assert await engine.exchange(caller(60, forever), "detector", request, name_of) == "detector"
        assert len(asyncio.all_tasks()) == 1

    with running(seen) as engine:
        asyncio.run(run(engine))
    assert [event.outcome for event in seen.events] == [None] * 20


@pytest.mark.parametrize("first", ["time", "cancelled"])
def test_a_request_that_is_lost_twice_at_once_is_told_once(first: str) -> None:
    seen, held = Seen(), Held()

    async def run(engine: Engine) -> None:
        watched, left = asyncio.Event(), asyncio.Event()

        async def gone() -> None:
            watched.set()
            await left.wait()
            if first == "time":
                # The loss is known before the call that is cancelled goes on.
                asyncio.get_running_loop().call_soon(second.cancel)

        busy = asyncio.create_task(engine.exchange(caller(), "detector", held.decode, name_of))
        await wait_until_async(lambda: held.count == 1)
        second = asyncio.create_task(engine.exchange(caller(gone=gone), "detector", request, name_of))
        await watched.wait()
        left.set()
        if first == "cancelled":
            second.cancel()
        with pytest.raises((asyncio.CancelledError, InferenceError)):
            await second
        await wait_until_async(lambda: engine.in_flight == 1)
        held.let.set()
        await busy

    with running(seen, workers=1) as engine:
        asyncio.run(run(engine))
    assert outcomes(seen) == [None, ErrorKind.CANCELLED]


def test_a_request_that_waits_when_the_engine_stops_is_told_so() -> None:
    seen, held = Seen(), Held()

    async def run(engine: Engine) -> None:
        first = asyncio.create_task(engine.exchange(caller(), "detector", held.decode, name_of))
        await wait_until_async(lambda: held.count == 1)
        second = asyncio.create_task(engine.exchange(caller(), "detector", request, name_of))
        await wait_until_async(lambda: engine.in_flight == 2)
        engine.close()
        with pytest.raises(InferenceError, match="stopping") as caught:
            await second
        assert caught.value.kind is ErrorKind.MODEL_NOT_READY
        held.let.set()
        assert await first == "detector"

    with running(seen, workers=1) as engine:
        asyncio.run(run(engine))
    assert outcomes(seen) == [None, ErrorKind.MODEL_NOT_READY]


def test_an_answer_that_comes_too_late_is_late_to_its_sender_and_to_whoever_counts() -> None:
    seen = Seen()

    async def run(engine: Engine) -> None:
        def decode() -> InferenceRequest:
            # Nothing in the event loop notices.
            asyncio.run_coroutine_threadsafe(_block(0.3), loop)
            threading.Event().wait(0.2)
            return request()

        loop = asyncio.get_running_loop()
        with pytest.raises(InferenceError) as caught:
            await engine.exchange(caller(timeout=0.1), "detector", decode, name_of)
        assert caught.value.kind is ErrorKind.DEADLINE_EXCEEDED

    async def _block(seconds: float) -> None:
        threading.Event().wait(seconds)

    with running(seen, workers=1) as engine:
        asyncio.run(run(engine))
    assert outcomes(seen) == [ErrorKind.DEADLINE_EXCEEDED]


def test_what_ends_at_its_deadline_was_late_whoever_ends_it() -> None:
    interest = CancellationToken(time.monotonic() - 0.001)
    interest.leave()
    assert interest.loss is not None
    assert interest.loss.kind is ErrorKind.DEADLINE_EXCEEDED


def test_a_request_that_the_stopping_server_cuts_off_is_told_so() -> None:
    seen, held = Seen(), Held()

    async def gone() -> None:
        await asyncio.Event().wait()

    async def run(engine: Engine) -> None:
        calls = [
            asyncio.create_task(engine.exchange(caller(gone=gone), "detector", held.decode, name_of)) for _ in range(2)
        ]
        await wait_until_async(lambda: held.count == 1 and engine.in_flight == 2)
        engine.hurry()
        for each in calls:
            each.cancel()
        for each in calls:
            with pytest.raises(InferenceError, match="stopping"):
                await each
        held.let.set()
        await wait_until_async(lambda: engine.in_flight == 0)

    with running(seen, workers=1) as engine:
        asyncio.run(run(engine))
    assert held.count == 1
    assert outcomes(seen) == [ErrorKind.MODEL_NOT_READY] * 2
