"""Answers told datum by datum: each before the next is begun, and one observation for all of them."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.engine.description import ModelDescription
from app.engine.engine import Engine
from app.engine.events import InferenceEvent, RequestInfo
from app.engine.registry import Registry
from app.engine.repository import Repository
from app.engine.servable import BoundServable, Servable
from app.engine.streaming import Piece
from app.protocols.bytes_elements import BinaryElement
from app.settings.model import ModelSource
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.response import InferenceResponse
from tasks.exchange.tensor import BytesTensor
from tasks.object_detection import ObjectDetection
from tasks.task import TaskType
from tests.support.pictures import encoded, rectangle
from tests.support.speaker import Gate, Seen, Speaker, speaking
from tests.support.stand_ins import detect

CALLER = RequestInfo(protocol="test", request_id="abc")
PICTURE = BinaryElement(encoded(rectangle()))


def request(*counts: int, model: str = "detector", **parameters: object) -> InferenceRequest:
    inputs = [
        BytesTensor(name=name, shape=(count,), elements=[PICTURE] * count, parameters=parameters)
        for name, count in zip("abc", counts, strict=False)
    ]
    return InferenceRequest(id="", model_name=model, inputs=tuple(inputs))


class Waited(Seen):
    """Can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.told = threading.Event()

    def observe(self, event: InferenceEvent, /) -> None:
        super().observe(event)
        self.told.set()


class Gated:
    """A detector that counts its calls, waits at a gate before each, and fails at one of them."""

    def __init__(self, gate: Gate, failing: int = -1) -> None:
        self.sizes: list[int] = []
        self._gate = gate
        self._failing = failing

    def __call__(self, inputs: Sequence[Any], /) -> Sequence[Any]:
        self._gate()
        self.sizes.append(len(inputs))
        if len(self.sizes) - 1 == self._failing:
            raise RuntimeError("tired")
        return detect(inputs)


def over(model: Gated, seen: Seen) -> Engine:
    def load(source: ModelSource) -> Servable:
        description = ModelDescription(
            task_type=TaskType.OBJECT_DETECTION,
            platform="stand-in",
            layout="none",
            labels=(),
            inputs=(),
            outputs=(),
            facts=(),
        )
        return BoundServable(ObjectDetection(), model, description, {})

    source = ModelSource(name="detector", version="3", folder=Path("detector"))
    registry = Registry([source])
    registry.load(source, load)
    return Engine(Repository(registry, lambda: [source], load), [seen], Limits(), workers=1)


def told(response: InferenceResponse) -> tuple[str, str, str, int, dict[str, object]]:
    (output,) = response.outputs
    (prediction,) = output.predictions
    found = (response.model_name, response.model_version, output.name, len(prediction.records()))
    return (*found, dict(output.parameters))


def piece_told(piece: Piece) -> str | None:
    return piece.text or None


def test_every_datum_is_answered_before_the_next_is_begun() -> None:
    gate, seen = Gate(), Seen()
    model = Gated(gate)
    engine = over(model, seen)

    async def run() -> None:
        asked = request(2, 1, metadata="m")
        parts = engine.parts(CALLER, "detector", lambda: asked, told, lambda _: None)
        async with aclosing(parts):
            for number, name in enumerate("aab", 1):
                gate.open()
                assert await anext(parts) == ("detector", "3", name, 1, {"metadata": "m"})
                assert model.sizes == [1] * number
            assert await anext(parts, None) is None

    asyncio.run(run())
    (event,) = seen.events
    assert (event.outcome, event.batch_size, event.model_version) == (None, 3, "3")
    assert 0 < event.timings.decode < event.total
    assert event.timings.decode + event.timings.model + event.timings.refine <= event.total
    assert not engine.busy


def test_a_failure_comes_behind_the_answers_before_it() -> None:
    seen = Seen()
    engine = over(Gated(Gate(opened=9), failing=1), seen)

    async def run() -> InferenceError:
        async with aclosing(engine.parts(CALLER, "", lambda: request(3), told, lambda _: None)) as parts:
            assert await anext(parts) == ("detector", "3", "a", 1, {})
            with pytest.raises(InferenceError, match="tired") as caught:
                await anext(parts)
            return caught.value

    assert asyncio.run(run()).kind is ErrorKind.MODEL_FAILED
    (event,) = seen.events
    assert (event.outcome, event.batch_size) == (ErrorKind.MODEL_FAILED, 1)
    assert not engine.busy


def test_a_reader_who_leaves_stops_the_model() -> None:
    gate, seen = Gate(opened=1), Waited()
    model = Gated(gate)
    engine = over(model, seen)

    async def run() -> None:
        async with aclosing(engine.parts(CALLER, "", lambda: request(5), told, lambda _: None)) as parts:
            await anext(parts)
            for _ in range(2):
                await asyncio.to_thread(gate.await_step)
        gate.open()
        assert await asyncio.to_thread(seen.told.wait, 60)

    asyncio.run(run())
    assert model.sizes == [1, 1]
    assert [event.outcome for event in seen.events] == [None]


def test_texts_are_told_piece_by_piece_but_those_that_nothing_is_made_of() -> None:
    seen = Seen()
    engine = speaking(Speaker("a", "", "b"), seen)

    async def run() -> list[str]:
        parts = engine.parts(CALLER, "", lambda: request(2, model="speaker"), lambda _: "never", piece_told)
        async with aclosing(parts):
            return [part async for part in parts]

    assert asyncio.run(run()) == ["a", "b"] * 2
    assert [(event.outcome, event.batch_size) for event in seen.events] == [(None, 2)]


def unreadable() -> InferenceRequest:
    raise InferenceError(ErrorKind.INVALID_REQUEST, "Expected more")


@pytest.mark.parametrize(
    ("decode", "kind"),
    [
        (unreadable, ErrorKind.INVALID_REQUEST),
        (lambda: request(1, model="nobody"), ErrorKind.MODEL_NOT_FOUND),
        (lambda: request(0), ErrorKind.INVALID_REQUEST),
        (lambda: 1 / 0, ErrorKind.INTERNAL),
    ],
)
def test_what_is_refused_is_refused_before_the_first(decode: Any, kind: ErrorKind) -> None:
    seen = Seen()
    engine = over(Gated(Gate(opened=9)), seen)

    async def run() -> None:
        async with aclosing(engine.parts(CALLER, "", decode, told, lambda _: None)) as parts:
            await anext(parts)

    with pytest.raises(InferenceError) as caught:
        asyncio.run(run())
    assert caught.value.kind is kind
    assert [event.outcome for event in seen.events] == [kind]
    assert not engine.busy
