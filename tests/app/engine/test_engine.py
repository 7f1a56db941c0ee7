"""The engine: every request is answered or refused, and observed exactly once."""

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.engine.engine import Engine
from app.engine.events import InferenceObserver, OutputAnnotator, RecordSink
from app.engine.models.registry import Registry
from app.engine.models.repository import Repository
from app.engine.request_context import RequestContext
from app.engine.scheduling.admission import QueueLimits
from app.settings.model import ModelSettings, ModelSource
from app.wire.bytes_elements import BinaryElement
from tasks.inference.error import ErrorKind, InferenceError, invalid
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse, InferenceResult
from tasks.inference.tensor import BytesTensor
from tests.support.fake_models import FAKE_MODELS, load_fake_model
from tests.support.images import encode_image, rectangle
from tests.support.polling import wait_until_async


def new_context() -> RequestContext:
    return RequestContext(protocol="test", request_id="abc", base_id="base")


class RecordingObserver:
    """Record every event."""

    def __init__(self) -> None:
        self.events: list[RequestContext] = []

    def observe(self, event: RequestContext, /) -> None:
        self.events.append(event)


class FailingObserver:
    """Raise an error, which observers must not do."""

    def observe(self, event: RequestContext, /) -> None:
        raise RuntimeError(event.model_name)


@contextmanager
def running(
    *observers: InferenceObserver,
    workers: int = 2,
    bounds: QueueLimits | None = None,
    additions: Sequence[OutputAnnotator] = (),
    keeper: RecordSink | None = None,
) -> Generator[Engine]:
    sources = [
        ModelSource(name=name, version="7", folder=Path(name), settings=ModelSettings(task_type=FAKE_MODELS[name][0]))
        for name in ("detector", "failing", "oriented")
    ]
    registry = Registry(sources)
    for source in sources[:2]:
        registry.load(source, load_fake_model)
    engine = Engine(
        Repository(registry, lambda: sources, load_fake_model),
        observers,
        Limits(max_inputs=8),
        workers,
        bounds or QueueLimits(),
        annotators=additions,
        record_sink=keeper,
    )
    try:
        yield engine
    finally:
        engine.close()


def request(model: str = "detector", count: int = 1, **parameters: object) -> InferenceRequest:
    element = BinaryElement(encode_image(rectangle()))
    tensor = BytesTensor(name="a", shape=(count,), elements=[element] * count, parameters=parameters)
    return InferenceRequest(id="body-id", model_name=model, inputs=(tensor,))


def name_of(response: InferenceResponse) -> str:
    return response.model_name


def run_exchange(
    engine: Engine, decode: Callable[[], InferenceRequest], encode: Callable[[InferenceResponse], Any] = name_of
) -> Any:
    return asyncio.run(engine.handle(new_context(), "detector", decode, encode))


def failed_exchange(
    decode: Callable[[], InferenceRequest], encode: Callable[[InferenceResponse], Any] = name_of
) -> tuple[InferenceError, RequestContext]:
    """Run a request that fails, and return its error and its event."""
    observer = RecordingObserver()
    with running(observer) as engine, pytest.raises(InferenceError) as caught:
        run_exchange(engine, decode, encode)
    (event,) = observer.events
    assert event.outcome is caught.value.kind
    assert event.error == str(caught.value)
    assert (event.protocol, event.request_id) == (new_context().protocol, new_context().request_id)
    return caught.value, event


def test_successful_inference_is_observed_once_with_all_fields() -> None:
    observer = RecordingObserver()
    with running(observer) as engine:
        assert (
            run_exchange(engine, lambda: request(count=3, metadata='[{"key":"k","type":"int","value":"5"}]'))
            == "detector"
        )
    (event,) = observer.events
    assert (event.outcome, event.error, event.request_id) == (None, "", new_context().request_id)
    assert (event.model_name, event.model_version, event.batch_size) == ("detector", "7", 3)
    assert [[(entry.key, entry.value) for entry in sample_metadata.entries] for sample_metadata in event.metadata] == [
        [("k", 5)]
    ]
    assert 0 < event.decode_ns + event.model_ns + event.postprocess_ns <= event.total
    assert 0 < event.queue < event.total


def test_response_has_id_version_and_only_echoed_parameters() -> None:
    with running() as engine:
        response = run_exchange(engine, lambda: request(metadata="x", top_k=5), lambda response: response)
    assert (response.id, response.model_name, response.model_version) == ("body-id", "detector", "7")
    assert [dict(output.parameters) for output in response.outputs] == [{"metadata": "x"}]


def test_failing_observer_does_not_affect_the_others(caplog: pytest.LogCaptureFixture) -> None:
    first, last = RecordingObserver(), RecordingObserver()
    with running(first, FailingObserver(), last) as engine:
        assert run_exchange(engine, request) == "detector"
        with pytest.raises(InferenceError, match="The model failed"):
            run_exchange(engine, lambda: request("failing"))
    assert [event.outcome for event in first.events] == [None, ErrorKind.MODEL_FAILED]
    assert [event.outcome for event in last.events] == [None, ErrorKind.MODEL_FAILED]
    assert [record.message for record in caplog.records].count("observer failed") == 2


def test_undecodable_request_is_observed_with_the_model_of_its_path() -> None:
    def unreadable() -> InferenceRequest:
        raise invalid("Expected more", "inputs")

    error, event = failed_exchange(unreadable)
    assert str(error) == "inputs: Expected more"
    assert (event.model_name, event.model_version, event.batch_size, list(event.metadata)) == ("detector", "", 0, [])


def test_failed_model_is_observed_with_its_version_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    error, event = failed_exchange(lambda: request("failing", metadata="["))
    assert error.kind is ErrorKind.MODEL_FAILED
    assert (event.model_name, event.model_version, event.batch_size) == ("failing", "7", 0)
    assert [len(sample_metadata.faults) for sample_metadata in event.metadata] == [1]
    assert any(record.__dict__.get("request_id") == "abc" and record.exc_info for record in caplog.records)


@pytest.mark.parametrize(
    ("model", "kind"), [("missing", ErrorKind.MODEL_NOT_FOUND), ("oriented", ErrorKind.MODEL_NOT_READY)]
)
def test_unknown_and_unready_models_are_refused(model: str, kind: ErrorKind) -> None:
    error, event = failed_exchange(lambda: request(model))
    assert error.kind is kind
    assert (event.model_name, event.model_version) == (model, "")


def test_invalid_request_is_not_logged_as_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    failed_exchange(lambda: request(count=9))
    assert not caplog.records


@pytest.mark.parametrize("crash", [ValueError("secret"), KeyError("secret"), RecursionError("secret"), MemoryError()])
def test_unexpected_error_shows_the_request_id_but_not_its_message(
    crash: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def encode(response: InferenceResponse) -> Any:
        raise crash

    error, event = failed_exchange(request, encode)
    assert error.kind is ErrorKind.INTERNAL
    assert "abc" in error.message
    assert "secret" not in error.message
    assert error.__cause__ is crash
    assert (event.batch_size, event.model_version) == (1, "7"), "the model has answered"
    assert [record.__dict__["request_id"] for record in caplog.records] == ["abc"]


def test_unexpected_error_of_a_decoder_is_internal() -> None:
    def decode() -> InferenceRequest:
        raise TypeError("secret")

    assert failed_exchange(decode)[0].kind is ErrorKind.INTERNAL


def test_concurrent_requests_get_their_own_responses() -> None:
    observer, barrier = RecordingObserver(), threading.Barrier(2, timeout=10)

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
    observer = RecordingObserver()

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


def test_infer_runs_in_the_calling_thread_without_observers() -> None:
    observer = RecordingObserver()
    with running(observer) as engine:
        response = engine.infer(request(metadata="x"))
        with pytest.raises(InferenceError, match="not known"):
            engine.infer(request("missing"))
    assert dict(response.outputs[0].parameters) == {"metadata": "x"}
    assert observer.events == []


def test_event_has_request_and_result() -> None:
    observer = RecordingObserver()
    with running(observer) as engine:
        run_exchange(engine, request)
        run_exchange(engine, request)
    first, second = observer.events
    assert first.request is not None
    assert first.result is not None
    assert [(sample.input, sample.index) for sample in first.result.samples] == [(0, 0)]
    assert first.result.samples[0].prediction.records()
    assert first.task_type == "OBJECT_DETECTION"
    assert first.id != second.id
    assert abs(time.time_ns() - first.timestamp) < 600e9


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
    sink, observer = FakeRecordSink(), RecordingObserver()

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

    with running(observer, keeper=sink) as engine:
        asyncio.run(run(engine))


def test_response_that_cannot_be_recorded_is_an_error() -> None:
    sink, observer = FakeRecordSink(), RecordingObserver()

    async def run(engine: Engine) -> None:
        call = asyncio.create_task(engine.handle(new_context(), "detector", request, name_of))
        await wait_until_async(lambda: bool(sink.recorded))
        sink.recorded[0][1].set_exception(InferenceError(ErrorKind.MODEL_NOT_READY, "The disk is full"))
        with pytest.raises(InferenceError, match="disk is full"):
            await call
        assert engine.statistics.for_model("detector", "7").success.count == 0

    with running(observer, keeper=sink) as engine:
        asyncio.run(run(engine))
    assert [(event.outcome, event.error) for event in observer.events] == [
        (ErrorKind.MODEL_NOT_READY, "The disk is full")
    ], "observers get the same error as the client"


def test_disconnect_does_not_cancel_the_recording() -> None:
    sink, observer = FakeRecordSink(), RecordingObserver()

    async def run(engine: Engine) -> None:
        call = asyncio.create_task(engine.handle(new_context(), "detector", request, name_of))
        await wait_until_async(lambda: bool(sink.recorded) and sink.recorded[0][1].awaited)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not sink.recorded[0][1].cancelled()
        sink.recorded[0][1].set_result(None)

    with running(observer, keeper=sink) as engine:
        asyncio.run(run(engine))
    assert [event.outcome for event in observer.events] == [None]


def test_engine_is_not_ready_if_the_record_sink_refuses() -> None:
    sink = FakeRecordSink()
    with running(keeper=sink) as engine:
        asyncio.run(engine.repository.unload("oriented"))
        asyncio.run(engine.repository.unload("failing"))
        assert engine.not_ready_reason == ""
        sink.unavailable_reason = "The disk is full"
        assert engine.not_ready_reason == "The disk is full"
        with pytest.raises(InferenceError, match="disk is full"):
            engine.ready_model("detector")


@pytest.mark.parametrize("step", ["mark_not_ready", "start_drain"])
def test_draining_engine_is_not_ready_but_serves_requests(step: str) -> None:
    with running() as engine:
        getattr(engine, step)()
        assert engine.not_ready_reason == "The server is stopping"
        with pytest.raises(InferenceError, match="stopping"):
            engine.ready_model("detector")
        assert run_exchange(engine, request) == "detector"


def test_request_that_outlasts_the_drain_is_observed_as_not_ready() -> None:
    observer, proceed, started = RecordingObserver(), threading.Event(), threading.Event()

    def wait() -> InferenceRequest:
        started.set()
        assert proceed.wait(60)
        return request()

    async def run(engine: Engine) -> None:
        call = asyncio.create_task(engine.handle(new_context(), "detector", wait, name_of))
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
    observer, proceed, started = RecordingObserver(), threading.Event(), threading.Event()

    def wait() -> InferenceRequest:
        started.set()
        assert proceed.wait(60)
        return request()

    async def run(engine: Engine) -> None:
        call = asyncio.create_task(engine.handle(new_context(), "detector", wait, name_of))
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


def test_refusal_is_recorded_without_delay() -> None:
    sink = FakeRecordSink()

    async def run(engine: Engine) -> None:
        with pytest.raises(InferenceError, match="not known"):
            await engine.handle(new_context(), "missing", lambda: request("missing"), name_of)

    with running(keeper=sink) as engine:
        asyncio.run(run(engine))
    assert [event.outcome for event, _ in sink.recorded] == [ErrorKind.MODEL_NOT_FOUND]


def test_annotator_adds_parameters_and_headers_to_the_response() -> None:
    def annotate(info: RequestContext, result: InferenceResult, model_name: str, /) -> Sequence[Mapping[str, object]]:
        info.response_headers["x-model"] = model_name
        return [{"seen": len(result.samples)} for _ in result.outputs]

    info = RequestContext(protocol="test", request_id="1", response_headers={})

    async def run(engine: Engine) -> None:
        parameters = await engine.handle(
            info, "detector", lambda: request(metadata="x"), lambda response: dict(response.outputs[0].parameters)
        )
        assert parameters == {"metadata": "x", "seen": 1}

    with running(additions=[annotate]) as engine:
        asyncio.run(run(engine))
    assert info.response_headers == {"x-model": "detector"}


def test_request_over_the_queue_limit_is_refused_at_once() -> None:
    observer, proceed = RecordingObserver(), threading.Event()

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

    with running(observer, workers=1, bounds=QueueLimits(max_waiting=1)) as engine:
        asyncio.run(run(engine))
        assert not engine.busy
    assert [event.outcome for event in observer.events] == [ErrorKind.OVERLOADED, None, None]


def test_closed_engine_refuses_requests() -> None:
    with running() as engine:
        engine.close()
        with pytest.raises(InferenceError, match="stopping") as caught:
            run_exchange(engine, request)
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
