"""The engine under load and when it stops: refusals, draining, and released memory."""

import asyncio
import gc
import threading
import weakref

import pytest

from app.core.engine.engine import Engine
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.request import InferenceRequest
from tasks.inference.tensor import BytesTensor
from tests.core.engine.engines import name_of, new_context, request, run_request, run_with_engine, running
from tests.support.data.images import encode_image, rectangle
from tests.support.models.scripted_model import EventRecorder
from tests.support.polling import wait_until_async
from tests.support.rejection import rejects


@pytest.mark.parametrize("step", ["mark_not_ready", "start_drain"])
def test_draining_engine_is_not_ready_but_serves_requests(step: str) -> None:
    with running() as engine:
        getattr(engine, step)()
        assert engine.not_ready_reason == "The server is stopping"
        with pytest.raises(InferenceError, match="stopping"):
            engine.ready_model("detector")
        assert run_request(engine, request) == "detector"


@pytest.mark.parametrize("in_time", [True, False])
def test_drain_waits_until_requests_are_observed_and_those_that_outlast_it_are_not_ready(in_time: bool) -> None:
    observer, proceed, started = EventRecorder(), threading.Event(), threading.Event()

    def decode() -> InferenceRequest:
        started.set()
        assert proceed.wait(60)
        return request()

    async def run(engine: Engine) -> None:
        call = asyncio.create_task(engine.handle(new_context(), "detector", decode, name_of))
        await asyncio.to_thread(started.wait, 60)
        engine.close()
        drained = asyncio.create_task(engine.wait_drained(60 if in_time else 0.01))
        await asyncio.sleep(0)
        assert not drained.done()
        if in_time:
            proceed.set()
        await drained
        observed = [(event.outcome, event.error) for event in observer.events]
        assert observed == [(None, "") if in_time else (ErrorKind.MODEL_NOT_READY, "The server is stopping")]
        proceed.set()
        await call

    run_with_engine(run, observer)
    assert len(observer.events) == 1, "observed once"


def test_closed_engine_rejects_requests() -> None:
    with running() as engine:
        engine.close()
        with rejects("stopping", kind=ErrorKind.MODEL_NOT_READY):
            run_request(engine, request)


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
