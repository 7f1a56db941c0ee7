"""The engine under load and when it stops: refusals, draining, and released memory."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from app.core.engine.engine import Engine
from app.core.engine.scheduling.admission import QueueLimits
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse
from tasks.inference.tensor import BytesTensor
from tests.core.engine.engines import name_of, new_context, request, run_request, running
from tests.support.data.images import encode_image, rectangle
from tests.support.models.scripted_model import EventRecorder
from tests.support.polling import wait_until_async


def test_concurrent_requests_get_their_own_responses() -> None:
    observer, barrier = EventRecorder(), threading.Barrier(2, timeout=10)

    def decode_together(model: str) -> Callable[[], InferenceRequest]:
        def decode() -> InferenceRequest:
            barrier.wait()
            return request(model)

        return decode

    async def run(engine: Engine) -> list[Any]:
        calls = [
            engine.handle(new_context(), model, decode_together(model), name_of) for model in ("detector", "failing")
        ]
        return list(await asyncio.gather(*calls, return_exceptions=True))

    with running(observer) as engine:
        answer, error = asyncio.run(run(engine))
    assert answer == "detector"
    assert isinstance(error, InferenceError)
    assert sorted(str(event.outcome) for event in observer.events) == ["None", "model_failed"]


def test_more_requests_than_workers_are_all_answered() -> None:
    observer = EventRecorder()

    async def run(engine: Engine) -> list[str]:
        requests = [request(count=1 + index % 3) for index in range(30)]
        calls = [
            engine.handle(
                new_context(), "detector", lambda inference_request=inference_request: inference_request, _predictions
            )
            for inference_request in requests
        ]
        return list(await asyncio.gather(*calls))

    with running(observer) as engine:
        assert asyncio.run(run(engine)) == [str(1 + index % 3) for index in range(30)]
    assert len(observer.events) == 30
    assert sum(event.batch_size for event in observer.events) == 60


def _predictions(response: InferenceResponse) -> str:
    return str(sum(len(output.predictions) for output in response.outputs))


@pytest.mark.parametrize("step", ["mark_not_ready", "start_drain"])
def test_draining_engine_is_not_ready_but_serves_requests(step: str) -> None:
    with running() as engine:
        getattr(engine, step)()
        assert engine.not_ready_reason == "The server is stopping"
        with pytest.raises(InferenceError, match="stopping"):
            engine.ready_model("detector")
        assert run_request(engine, request) == "detector"


def decode_when(proceed: threading.Event, started: threading.Event) -> InferenceRequest:
    """Report that a worker runs, and let it wait."""
    started.set()
    assert proceed.wait(60)
    return request()


def test_request_that_outlasts_the_drain_is_observed_as_not_ready() -> None:
    observer, proceed, started = EventRecorder(), threading.Event(), threading.Event()

    async def run(engine: Engine) -> None:
        call = asyncio.create_task(
            engine.handle(new_context(), "detector", partial(decode_when, proceed, started), name_of)
        )
        await asyncio.to_thread(started.wait, 60)
        engine.close()
        await engine.wait_drained(0.01)
        (event,) = observer.events
        assert (event.outcome, event.error) == (ErrorKind.MODEL_NOT_READY, "The server is stopping")
        proceed.set()
        await call

    with running(observer) as engine:
        asyncio.run(run(engine))
    assert len(observer.events) == 1, "observed once"


def test_drain_waits_until_requests_are_observed() -> None:
    observer, proceed, started = EventRecorder(), threading.Event(), threading.Event()

    async def run(engine: Engine) -> None:
        call = asyncio.create_task(
            engine.handle(new_context(), "detector", partial(decode_when, proceed, started), name_of)
        )
        await asyncio.to_thread(started.wait, 60)
        engine.close()
        drained = asyncio.create_task(engine.wait_drained(60))
        await asyncio.sleep(0)
        assert not drained.done()
        proceed.set()
        await drained
        assert [event.outcome for event in observer.events] == [None]
        await call

    with running(observer) as engine:
        asyncio.run(run(engine))
    assert [event.outcome for event in observer.events] == [None]


def test_request_over_the_queue_limit_is_rejected_at_once() -> None:
    observer, proceed = EventRecorder(), threading.Event()

    def wait() -> InferenceRequest:
        assert proceed.wait(60)
        return request()

    async def run(engine: Engine) -> None:
        calls = [asyncio.create_task(engine.handle(new_context(), "detector", wait, name_of)) for _ in range(3)]
        (first_done,), _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        error = first_done.exception()
        assert isinstance(error, InferenceError)
        assert error.kind is ErrorKind.OVERLOADED
        assert engine.busy
        proceed.set()
        await asyncio.gather(*calls, return_exceptions=True)

    with running(observer, workers=1, queue_limits=QueueLimits(max_waiting=1)) as engine:
        asyncio.run(run(engine))
        assert not engine.busy
    assert [event.outcome for event in observer.events] == [ErrorKind.OVERLOADED, None, None]


def test_closed_engine_rejects_requests() -> None:
    with running() as engine:
        engine.close()
        with pytest.raises(InferenceError, match="stopping") as caught:
            run_request(engine, request)
        assert caught.value.kind is ErrorKind.MODEL_NOT_READY


class WatchableElement:
    """Support weak references, unlike the usual elements."""

    def binary(self) -> bytes:
        return encode_image(rectangle())

    def text(self) -> str:
        raise NotImplementedError


def test_request_is_released_after_its_response() -> None:
    references: list[weakref.ref[WatchableElement]] = []

    def decode() -> InferenceRequest:
        element = WatchableElement()
        references.append(weakref.ref(element))
        tensor = BytesTensor(name="a", shape=(1,), elements=[element])
        return InferenceRequest(id="1", model_name="detector", inputs=(tensor,))

    async def run(engine: Engine) -> None:
        for _ in range(5):
            await engine.handle(new_context(), "detector", decode, name_of)
        await wait_until_async(
            lambda: not engine.in_flight and all(reference() is None for reference in references[:-1])
        )

    gc.disable()
    try:
        with running() as engine:
            asyncio.run(asyncio.wait_for(run(engine), 30))
    finally:
        gc.enable()
