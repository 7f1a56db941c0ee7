"""The engine: every request is answered or rejected, and observed exactly once, also when the engine stops."""

import asyncio
import gc
import subprocess
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from app.core.engine.engine import Engine
from app.core.engine.executor import Executor
from app.core.engine.request_context import RequestContext, request_id
from tasks.inference.error import ErrorKind, InferenceError, invalid
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse, InferenceResult
from tasks.inference.tensor import BytesTensor
from tests.core.engine.engines import name_of, new_context, request, run_request, run_with_engine, running
from tests.support.data.images import encode_image, rectangle
from tests.support.models.scripted_model import EventRecorder
from tests.support.polling import wait_until_async
from tests.support.servers.server_process import ROOT


class FailingObserver:
    """Raise an error, which observers must not do."""

    def observe(self, event: RequestContext, /) -> None:
        raise RuntimeError(event.model_name)


def failed_request(
    decode: Callable[[], InferenceRequest], encode: Callable[[InferenceResponse], Any] = name_of
) -> tuple[InferenceError, RequestContext]:
    """Run a request that fails, and return its error and its event."""
    observer = EventRecorder()
    with running(observer) as engine, pytest.raises(InferenceError) as caught:
        run_request(engine, decode, encode)
    (event,) = observer.events
    assert event.outcome is caught.value.kind
    assert event.error == str(caught.value)
    assert (event.protocol, event.request_id) == (new_context().protocol, new_context().request_id)
    return caught.value, event


def test_successful_inference_is_observed_once_with_all_fields() -> None:
    observer = EventRecorder()
    with running(observer) as engine:
        assert (
            run_request(engine, lambda: request(count=3, metadata='[{"key":"k","type":"int","value":"5"}]'))
            == "detector"
        )
    (event,) = observer.events
    assert (event.outcome, event.error, event.request_id) == (None, "", new_context().request_id)
    assert (event.model_name, event.model_version, event.batch_size) == ("detector", "7", 3)
    assert [
        [(entry.key, entry.value) for entry in sample_metadata.entries] for sample_metadata in event.metadata.of()
    ] == [[("k", 5)]]
    assert 0 < event.decode_ns + event.model_ns + event.postprocess_ns <= event.total
    assert 0 < event.queue < event.total
    assert event.request is not None
    assert event.result is not None
    assert [(sample.input, sample.index) for sample in event.result.samples] == [(0, 0), (0, 1), (0, 2)]
    assert event.result.samples[0].prediction.records()
    assert event.task_type == "OBJECT_DETECTION"
    assert abs(time.time_ns() - event.timestamp) < 600e9


def test_failing_observer_does_not_affect_the_others(caplog: pytest.LogCaptureFixture) -> None:
    first, last = EventRecorder(), EventRecorder()
    with running(first, FailingObserver(), last) as engine:
        assert run_request(engine, request) == "detector"
        with pytest.raises(InferenceError, match="The model failed"):
            run_request(engine, lambda: request("failing"))
    assert [event.outcome for event in first.events] == [None, ErrorKind.MODEL_FAILED]
    assert [event.outcome for event in last.events] == [None, ErrorKind.MODEL_FAILED]
    assert [record.message for record in caplog.records].count("observer failed") == 2


def test_undecodable_request_is_observed_with_the_model_of_its_path() -> None:
    def unreadable() -> InferenceRequest:
        raise invalid("Expected more", "inputs")

    error, event = failed_request(unreadable)
    assert str(error) == "inputs: Expected more"
    assert (event.model_name, event.model_version, event.batch_size, list(event.metadata.of())) == (
        "detector",
        "",
        0,
        [],
    )


def test_failed_model_is_observed_with_its_version_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    error, event = failed_request(lambda: request("failing", metadata="["))
    assert error.kind is ErrorKind.MODEL_FAILED
    assert (event.model_name, event.model_version, event.batch_size) == ("failing", "7", 0)
    assert [len(sample_metadata.faults) for sample_metadata in event.metadata.of()] == [1]
    assert any(record.__dict__.get("request_id") == "abc" and record.exc_info for record in caplog.records)


def test_unknown_name_of_megabytes_is_cut_for_observers() -> None:
    _, event = failed_request(lambda: request(model="m" * 1_000_000))
    assert event.model_name == "m" * 255 + "..."


@pytest.mark.parametrize(
    ("model", "kind"), [("missing", ErrorKind.MODEL_NOT_FOUND), ("oriented", ErrorKind.MODEL_NOT_READY)]
)
def test_unknown_and_unready_models_are_rejected(model: str, kind: ErrorKind) -> None:
    error, event = failed_request(lambda: request(model))
    assert error.kind is kind
    assert (event.model_name, event.model_version) == (model, "")


def test_invalid_request_is_not_logged_as_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    failed_request(lambda: request(count=9))
    assert not caplog.records


@pytest.mark.parametrize("crash", [ValueError("secret"), KeyError("secret"), RecursionError("secret"), MemoryError()])
def test_unexpected_error_shows_the_request_id_but_not_its_message(
    crash: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def encode(response: InferenceResponse) -> Any:
        raise crash

    error, event = failed_request(request, encode)
    assert error.kind is ErrorKind.INTERNAL
    assert "abc" in error.message
    assert "secret" not in error.message
    assert error.__cause__ is crash
    assert (event.batch_size, event.model_version) == (1, "7"), "the model has answered"
    assert [record.__dict__["request_id"] for record in caplog.records] == ["abc"]


def test_annotator_adds_parameters_and_headers_to_the_response() -> None:
    def annotate(info: RequestContext, result: InferenceResult, model_name: str, /) -> Sequence[Mapping[str, object]]:
        info.response_headers["x-model"] = model_name
        return [{"seen": len(result.samples)} for _ in result.outputs]

    info = new_context()

    async def run(engine: Engine) -> None:
        parameters = await engine.handle(
            info, "detector", lambda: request(metadata="x"), lambda response: dict(response.outputs[0].parameters)
        )
        assert parameters == {"metadata": "x", "seen": 1}

    run_with_engine(run, annotators=[annotate])
    assert info.response_headers == {"x-model": "detector"}


def event_id() -> str:
    context = new_context()
    context.finish()
    return context.id


def test_ids_are_unique_and_well_formed_and_those_of_events_are_ordered_by_time() -> None:
    events, requests = [event_id() for _ in range(2000)], {request_id() for _ in range(2000)}
    assert len({*events}) == len(requests) == 2000
    times = [name[:12] for name in events]
    assert times == sorted(times)
    assert all(len(name) == 32 and int(name, 16) >= 0 for name in events)
    assert all(uuid.UUID(name).version == 4 for name in requests)


def test_forked_processes_make_different_ids() -> None:
    # In an interpreter of its own: a thread of gRPC can abort a forked child.
    code = """
import os
from app.core.engine.request_context import request_id
children = [os.fork() or os._exit(os.write(1, f"{request_id()}\\n".encode()) != 37) for _ in range(3)]
statuses = [os.waitpid(child, 0)[1] for child in children]
print(request_id(), *statuses)
"""
    printed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    *names, own = printed.splitlines()
    name, *statuses = own.split()
    assert statuses == ["0", "0", "0"]
    assert len({*names, name}) == 4


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
            lambda: not engine.admission.in_flight and all(reference() is None for reference in references[:-1])
        )

    gc.disable()
    try:
        with running() as engine:
            asyncio.run(asyncio.wait_for(run(engine), 30))
    finally:
        gc.enable()


def test_request_that_waited_too_long_is_rejected_before_its_body_is_decoded() -> None:
    with running() as engine:
        executor = Executor(engine.registry, engine.limits, engine.batched_observers)
        with pytest.raises(InferenceError, match="longer than the server allows; try again later") as caught:
            executor.handle(new_context(max_queue_seconds=0), lambda: pytest.fail("decoded"), name_of)
    assert (caught.value.kind, caught.value.retry_after) == (ErrorKind.OVERLOADED, 1)
