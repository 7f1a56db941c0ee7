"""One exchange: answered or refused, and observed exactly once."""

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

from app.engine.admission import Bounds
from app.engine.answered import InferenceResult
from app.engine.engine import Engine
from app.engine.events import InferenceEvent, InferenceObserver, OutputAnnotator, RecordSink, RequestInfo
from app.engine.registry import Registry
from app.engine.repository import Repository
from app.protocols.bytes_elements import BinaryElement
from app.settings.model import ModelSettings, ModelSource
from tasks.exchange.error import ErrorKind, InferenceError, invalid
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.response import InferenceResponse
from tasks.exchange.tensor import BytesTensor
from tests.support.pictures import encoded, rectangle
from tests.support.polling import wait_until_async
from tests.support.stand_ins import STAND_INS, load_stand_in

CALLER = RequestInfo(protocol="test", request_id="abc", base_id="base")


class Seen:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[InferenceEvent] = []

    def observe(self, event: InferenceEvent, /) -> None:
        self.events.append(event)


class Clumsy:
    """Breaks its promise not to raise."""

    def observe(self, event: InferenceEvent, /) -> None:
        raise RuntimeError(event.model_name)


@contextmanager
def running(
    *observers: InferenceObserver,
    workers: int = 2,
    bounds: Bounds | None = None,
    additions: Sequence[OutputAnnotator] = (),
    keeper: RecordSink | None = None,
) -> Generator[Engine]:
    sources = [
        ModelSource(name=name, version="7", folder=Path(name), settings=ModelSettings(task_type=STAND_INS[name][0]))
        for name in ("detector", "failing", "oriented")
    ]
    registry = Registry(sources)
    for each in sources[:2]:
        registry.load(each, load_stand_in)
    engine = Engine(
        Repository(registry, lambda: sources, load_stand_in),
        observers,
        Limits(max_inputs=8),
        workers,
        bounds or Bounds(),
        additions=additions,
        keeper=keeper,
    )
    try:
        yield engine
    finally:
        engine.close()


def request(model: str = "detector", count: int = 1, **parameters: object) -> InferenceRequest:
    picture = BinaryElement(encoded(rectangle()))
    tensor = BytesTensor(name="a", shape=(count,), elements=[picture] * count, parameters=parameters)
    return InferenceRequest(id="body-id", model_name=model, inputs=(tensor,))


def name_of(response: InferenceResponse) -> str:
    return response.model_name


def exchange(
    engine: Engine, decode: Callable[[], InferenceRequest], encode: Callable[[InferenceResponse], Any] = name_of
) -> Any:
    return asyncio.run(engine.exchange(CALLER, "detector", decode, encode))


def failure(decode: Callable[[], InferenceRequest], encode: Callable[[InferenceResponse], Any] = name_of) -> tuple[
    InferenceError, InferenceEvent
]:  # fmt: skip
    """The error of an exchange that fails, and the one event that tells of it."""
    seen = Seen()
    with running(seen) as engine, pytest.raises(InferenceError) as caught:
        exchange(engine, decode, encode)
    (event,) = seen.events
    assert event.outcome is caught.value.kind
    assert event.error == str(caught.value)
    assert event.caller == CALLER
    return caught.value, event


def test_an_answer_is_observed_once_with_all_that_is_known() -> None:
    seen = Seen()
    with running(seen) as engine:
        assert (
            exchange(engine, lambda: request(count=3, metadata='[{"key":"k","type":"int","value":"5"}]')) == "detector"
        )
    (event,) = seen.events
    assert (event.outcome, event.error, event.caller) == (None, "", CALLER)
    assert (event.model_name, event.model_version, event.batch_size) == ("detector", "7", 3)
    assert [[(each.key, each.value) for each in read.entries] for read in event.metadata] == [[("k", 5)]]
    assert 0 < event.timings.decode + event.timings.model + event.timings.refine <= event.total
    assert 0 < event.queue < event.total


def test_the_answer_carries_ids_versions_and_only_the_echoed_parameters() -> None:
    with running() as engine:
        response = exchange(engine, lambda: request(metadata="x", top_k=5), lambda response: response)
    assert (response.id, response.model_name, response.model_version) == ("body-id", "detector", "7")
    assert [dict(output.parameters) for output in response.outputs] == [{"metadata": "x"}]


def test_every_observer_is_told_although_one_raises(caplog: pytest.LogCaptureFixture) -> None:
    first, last = Seen(), Seen()
    with running(first, Clumsy(), last) as engine:
        assert exchange(engine, request) == "detector"
        with pytest.raises(InferenceError, match="The model failed"):
            exchange(engine, lambda: request("failing"))
    assert [event.outcome for event in first.events] == [None, ErrorKind.MODEL_FAILED]
    assert [event.outcome for event in last.events] == [None, ErrorKind.MODEL_FAILED]
    assert [record.message for record in caplog.records].count("observer failed") == 2


def test_a_request_that_cannot_be_read_is_told_under_the_name_in_its_path() -> None:
    def unreadable() -> InferenceRequest:
        raise invalid("Expected more", "inputs")

    error, event = failure(unreadable)
    assert str(error) == "inputs: Expected more"
    assert (event.model_name, event.model_version, event.batch_size, list(event.metadata)) == ("detector", "", 0, [])


def test_a_failing_model_is_told_with_its_version_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    error, event = failure(lambda: request("failing", metadata="["))
    assert error.kind is ErrorKind.MODEL_FAILED
    assert (event.model_name, event.model_version, event.batch_size) == ("failing", "7", 0)
    assert [len(read.faults) for read in event.metadata] == [1]
    assert any(record.__dict__.get("request_id") == "abc" and record.exc_info for record in caplog.records)


@pytest.mark.parametrize(
    ("model", "kind"), [("nobody", ErrorKind.MODEL_NOT_FOUND), ("oriented", ErrorKind.MODEL_NOT_READY)]
)
def test_a_model_that_cannot_answer(model: str, kind: ErrorKind) -> None:
    error, event = failure(lambda: request(model))
    assert error.kind is kind
    assert (event.model_name, event.model_version) == (model, "")


def test_refusals_are_not_logged_as_failures(caplog: pytest.LogCaptureFixture) -> None:
    failure(lambda: request(count=9))
    assert not caplog.records


@pytest.mark.parametrize("crash", [ValueError("secret"), KeyError("secret"), RecursionError("secret"), MemoryError()])
def test_what_nobody_expected_names_the_request_and_hides_the_rest(
    crash: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def encode(response: InferenceResponse) -> Any:
        raise crash

    error, event = failure(request, encode)
    assert error.kind is ErrorKind.INTERNAL
    assert "abc" in error.message
    assert "secret" not in error.message
    assert error.__cause__ is crash
    assert (event.batch_size, event.model_version) == (1, "7"), "the model had answered"
    assert [record.__dict__["request_id"] for record in caplog.records] == ["abc"]


def test_what_nobody_expected_while_reading_is_internal_too() -> None:
    def decode() -> InferenceRequest:
        raise TypeError("secret")

    assert failure(decode)[0].kind is ErrorKind.INTERNAL


def test_exchanges_run_side_by_side_and_each_gets_its_own_answer() -> None:
    seen, both = Seen(), threading.Barrier(2, timeout=10)

    def meeting(model: str) -> Callable[[], InferenceRequest]:
        def decode() -> InferenceRequest:
            both.wait()
            return request(model)

        return decode

    async def two(engine: Engine) -> list[Any]:
        calls = [engine.exchange(CALLER, model, meeting(model), name_of) for model in ("detector", "failing")]
        return list(await asyncio.gather(*calls, return_exceptions=True))

    with running(seen) as engine:
        answer, error = asyncio.run(two(engine))
    assert answer == "detector"
    assert isinstance(error, InferenceError)
    assert sorted(str(event.outcome) for event in seen.events) == ["None", "model_failed"]


def test_many_more_exchanges_than_workers_are_all_answered() -> None:
    seen = Seen()

    async def many(engine: Engine) -> list[str]:
        wishes = [request(count=1 + index % 3) for index in range(30)]
        sizes = [engine.exchange(CALLER, "detector", lambda wish=wish: wish, _predictions) for wish in wishes]
        return list(await asyncio.gather(*sizes))

    with running(seen) as engine:
        assert asyncio.run(many(engine)) == [str(1 + index % 3) for index in range(30)]
    assert len(seen.events) == 30
    assert sum(event.batch_size for event in seen.events) == 60


def _predictions(response: InferenceResponse) -> str:
    return str(sum(len(output.predictions) for output in response.outputs))


def test_infer_answers_in_the_calling_thread_and_tells_nobody() -> None:
    seen = Seen()
    with running(seen) as engine:
        response = engine.infer(request(metadata="x"))
        with pytest.raises(InferenceError, match="not known"):
            engine.infer(request("nobody"))
    assert dict(response.outputs[0].parameters) == {"metadata": "x"}
    assert seen.events == []


def test_an_event_has_what_was_asked_and_answered() -> None:
    seen = Seen()
    with running(seen) as engine:
        exchange(engine, request)
        exchange(engine, request)
    first, second = seen.events
    assert first.request is not None
    assert first.answered is not None
    assert [(each.input, each.index) for each in first.answered.data] == [(0, 0)]
    assert first.answered.data[0].prediction.records()
    assert first.task_type == "OBJECT_DETECTION"
    assert first.id != second.id
    assert abs(time.time_ns() - first.started) < 600e9


class _KeptLater(Future[None]):
    """Tell when something waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.awaited = False

    def add_done_callback(self, fn: Callable[[Future[None]], object]) -> None:
        super().add_done_callback(fn)
        self.awaited = True


class _Cupboard:
    """Keeps what it is told, when it is told to."""

    def __init__(self) -> None:
        self.kept: list[tuple[InferenceEvent, _KeptLater]] = []
        self.refusing = ""

    def keep(self, event: InferenceEvent, /) -> Future[None]:
        future = _KeptLater()
        self.kept.append((event, future))
        return future


def test_no_answer_leaves_before_it_is_kept() -> None:
    cupboard, seen = _Cupboard(), Seen()

    async def run(engine: Engine) -> None:
        call = asyncio.create_task(engine.exchange(CALLER, "detector", request, name_of))
        await wait_until_async(lambda: bool(cupboard.kept))
        event, future = cupboard.kept[0]
        assert event.outcome is None
        assert not call.done()
        assert not seen.events, "nobody is told of an answer that may never leave"
        future.set_result(None)
        assert await call == "detector"
        (told,) = seen.events
        assert (told.id, told.outcome) == (event.id, None)
        assert told.total > event.total, "keeping takes its time too"

    with running(seen, keeper=cupboard) as engine:
        asyncio.run(run(engine))


def test_an_answer_that_cannot_be_kept_is_an_error() -> None:
    cupboard, seen = _Cupboard(), Seen()

    async def run(engine: Engine) -> None:
        call = asyncio.create_task(engine.exchange(CALLER, "detector", request, name_of))
        await wait_until_async(lambda: bool(cupboard.kept))
        cupboard.kept[0][1].set_exception(InferenceError(ErrorKind.MODEL_NOT_READY, "The disk is full"))
        with pytest.raises(InferenceError, match="disk is full"):
            await call
        assert engine.statistics.of("detector", "7").success.count == 0

    with running(seen, keeper=cupboard) as engine:
        asyncio.run(run(engine))
    assert [(event.outcome, event.error) for event in seen.events] == [
        (ErrorKind.MODEL_NOT_READY, "The disk is full")
    ], "observers are told what the sender was"


def test_a_sender_who_leaves_while_the_answer_is_kept_does_not_stop_the_keeping() -> None:
    cupboard, seen = _Cupboard(), Seen()

    async def run(engine: Engine) -> None:
        call = asyncio.create_task(engine.exchange(CALLER, "detector", request, name_of))
        await wait_until_async(lambda: bool(cupboard.kept) and cupboard.kept[0][1].awaited)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not cupboard.kept[0][1].cancelled()
        cupboard.kept[0][1].set_result(None)

    with running(seen, keeper=cupboard) as engine:
        asyncio.run(run(engine))
    assert [event.outcome for event in seen.events] == [None]


def test_readiness_says_that_nothing_can_be_kept() -> None:
    cupboard = _Cupboard()
    with running(keeper=cupboard) as engine:
        asyncio.run(engine.repository.unload("oriented"))
        asyncio.run(engine.repository.unload("failing"))
        assert engine.unready == ""
        cupboard.refusing = "The disk is full"
        assert engine.unready == "The disk is full"
        with pytest.raises(InferenceError, match="disk is full"):
            engine.ready("detector")


@pytest.mark.parametrize("step", ["retire", "hurry"])
def test_a_server_that_is_about_to_stop_is_not_ready_and_answers_what_comes(step: str) -> None:
    with running() as engine:
        getattr(engine, step)()
        assert engine.unready == "The server is stopping"
        with pytest.raises(InferenceError, match="stopping"):
            engine.ready("detector")
        assert exchange(engine, request) == "detector"


def test_a_request_that_outlasts_the_server_is_told_before_its_end() -> None:
    seen, held, begun = Seen(), threading.Event(), threading.Event()

    def wait() -> InferenceRequest:
        begun.set()
        assert held.wait(60)
        return request()

    async def run(engine: Engine) -> None:
        call = asyncio.create_task(engine.exchange(CALLER, "detector", wait, name_of))
        await asyncio.to_thread(begun.wait, 60)
        engine.close()
        await engine.ended(0.01)
        (event,) = seen.events
        assert (event.outcome, event.error) == (ErrorKind.MODEL_NOT_READY, "The server is stopping")
        held.set()
        await call

    with running(seen) as engine:
        asyncio.run(run(engine))
    assert len(seen.events) == 1, "told once"


def test_the_end_waits_for_what_is_about_to_be_told() -> None:
    seen, held, begun = Seen(), threading.Event(), threading.Event()

    def wait() -> InferenceRequest:
        begun.set()
        assert held.wait(60)
        return request()

    async def run(engine: Engine) -> None:
        call = asyncio.create_task(engine.exchange(CALLER, "detector", wait, name_of))
        await asyncio.to_thread(begun.wait, 60)
        engine.close()
        end = asyncio.create_task(engine.ended(60))
        await asyncio.sleep(0)
        assert not end.done()
        held.set()
        await end
        assert [event.outcome for event in seen.events] == [None]
        await call

    with running(seen) as engine:
        asyncio.run(run(engine))
    assert [event.outcome for event in seen.events] == [None]


def test_a_refusal_is_kept_too_and_waits_for_nobody() -> None:
    cupboard = _Cupboard()

    async def run(engine: Engine) -> None:
        with pytest.raises(InferenceError, match="not known"):
            await engine.exchange(CALLER, "nobody", lambda: request("nobody"), name_of)

    with running(keeper=cupboard) as engine:
        asyncio.run(run(engine))
    assert [event.outcome for event, _ in cupboard.kept] == [ErrorKind.MODEL_NOT_FOUND]


def test_additions_say_something_about_every_answer() -> None:
    def count(caller: RequestInfo, answered: InferenceResult, model_name: str, /) -> Sequence[Mapping[str, object]]:
        caller.returned["x-model"] = model_name
        return [{"seen": len(answered.data)} for _ in answered.outputs]

    caller = RequestInfo(protocol="test", request_id="1", returned={})

    async def run(engine: Engine) -> None:
        said = await engine.exchange(
            caller, "detector", lambda: request(metadata="x"), lambda response: dict(response.outputs[0].parameters)
        )
        assert said == {"metadata": "x", "seen": 1}

    with running(additions=[count]) as engine:
        asyncio.run(run(engine))
    assert caller.returned == {"x-model": "detector"}


def test_a_request_that_finds_no_place_is_refused_at_once() -> None:
    seen, held = Seen(), threading.Event()

    def wait() -> InferenceRequest:
        assert held.wait(60)
        return request()

    async def run(engine: Engine) -> None:
        calls = [asyncio.create_task(engine.exchange(CALLER, "detector", wait, name_of)) for _ in range(3)]
        (refused,), _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        error = refused.exception()
        assert isinstance(error, InferenceError)
        assert error.kind is ErrorKind.OVERLOADED
        assert engine.busy
        held.set()
        await asyncio.gather(*calls, return_exceptions=True)

    with running(seen, workers=1, bounds=Bounds(max_waiting=1)) as engine:
        asyncio.run(run(engine))
        assert not engine.busy
    assert [event.outcome for event in seen.events] == [ErrorKind.OVERLOADED, None, None]


def test_a_stopping_engine_takes_no_more() -> None:
    with running() as engine:
        engine.close()
        with pytest.raises(InferenceError, match="stopping") as caught:
            exchange(engine, request)
        assert caught.value.kind is ErrorKind.MODEL_NOT_READY


class _Picture:
    """An element that can be watched."""

    def binary(self) -> bytes:
        return encoded(rectangle())

    def text(self) -> str:
        raise NotImplementedError


def test_nothing_of_a_request_is_kept_once_it_is_answered() -> None:
    watched: list[weakref.ref[_Picture]] = []

    def decode() -> InferenceRequest:
        picture = _Picture()
        watched.append(weakref.ref(picture))
        tensor = BytesTensor(name="a", shape=(1,), elements=[picture])
        return InferenceRequest(id="1", model_name="detector", inputs=(tensor,))

    async def run(engine: Engine) -> None:
        for _ in range(5):
            await engine.exchange(CALLER, "detector", decode, name_of)
        await wait_until_async(lambda: not engine.in_flight and all(each() is None for each in watched[:-1]))

    gc.disable()
    try:
        with running() as engine:
            asyncio.run(asyncio.wait_for(run(engine), 30))
    finally:
        gc.enable()
