"""Many requests at once, of which some fail, come too late or are left: each is observed once, as it ended."""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest

from app.engine.admission import Bounds
from app.engine.description import ModelDescription
from app.engine.engine import Engine
from app.engine.events import RequestInfo
from app.engine.interest import check_interest
from app.engine.registry import Registry
from app.engine.repository import Repository
from app.engine.servable import BoundServable, Servable
from app.engine.workers import waiting_elsewhere
from app.protocols.bytes_elements import StringElement
from app.settings.model import ModelSettings, ModelSource
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.response import InferenceResponse
from tasks.exchange.tensor import BytesTensor
from tasks.task import TaskType, TextPiece
from tasks.text_generation import ContinuedText, Generation, TextGeneration
from tests.support.polling import wait_until_async
from tests.support.speaker import Seen

WORKERS = 2
WAITING = 24
NAMES = ("gathered", "elsewhere", "plain", "spoken")


class Echo:
    """Says what it is told after a moment, now and then in a thread that is not its own; fails over what is bad."""

    def __init__(self, seed: int, *, elsewhere: bool = False) -> None:
        self._random = random.Random(seed)
        self._elsewhere = elsewhere

    def __call__(self, inputs: Sequence[ContinuedText], /) -> Sequence[Generation]:
        moment = threading.Event()
        check_interest()
        if self._elsewhere:
            with waiting_elsewhere():
                moment.wait(self._random.random() * 0.004)
        else:
            moment.wait(self._random.random() * 0.002)
        if any("bad" in each.item.text for each in inputs):
            raise ValueError("a bad text")
        return [Generation(each.item.text) for each in inputs]


class Speaker(Echo):
    """Says it again and again."""

    def stream(self, inputs: Sequence[ContinuedText], /) -> Generator[TextPiece]:
        for item, each in enumerate(inputs):
            for _ in range(80):
                if "bad" in each.item.text and self._random.random() < 0.05:
                    raise ValueError("a bad text")
                yield TextPiece(item=item, prompt=0, text=each.item.text)
            yield TextPiece(item=item, prompt=0, text="", final=True)


@contextmanager
def engine_of(seed: int, seen: Seen, workers: int = WORKERS) -> Generator[Engine]:
    sources = [
        ModelSource(
            name=name, version="1", folder=Path(name), settings=ModelSettings(task_type=TaskType.TEXT_GENERATION)
        )
        for name in NAMES
    ]

    def load(source: ModelSource) -> Servable:
        model = (Speaker if source.name == "spoken" else Echo)(seed, elsewhere=source.name == "elsewhere")
        description = ModelDescription(
            task_type=TaskType.TEXT_GENERATION, platform="stand-in", layout="none", labels=(), inputs=(), outputs=(),
            facts=(),
        )  # fmt: skip
        servable = BoundServable(TextGeneration(), model, description, {})
        return servable.batched(4, 0.001) if source.name in ("gathered", "elsewhere") else servable

    registry = Registry(sources)
    for each in sources:
        registry.load(each, load)
    bounds = Bounds(max_waiting=WAITING, max_waiting_each=WAITING)
    engine = Engine(Repository(registry, lambda: sources, load), (seen,), Limits(), workers, bounds)
    try:
        yield engine
    finally:
        engine.close()


def asked(model: str, text: str) -> InferenceRequest:
    tensor = BytesTensor(name="text", shape=(1,), elements=[StringElement(text)])
    return InferenceRequest(id=text, model_name=model, inputs=(tensor,))


def said(response: InferenceResponse) -> str:
    (output,) = response.outputs
    (prediction,) = output.predictions
    assert isinstance(prediction, Generation)
    return prediction.text


class Sender:
    """One who sends requests of every kind, and remembers what became of them.

    Args:
        engine: answers them.
        number: tells the sender from the others.
        seed: decides what it does.
    """

    def __init__(self, engine: Engine, number: int, seed: int) -> None:
        self._engine = engine
        self._number = number
        self._random = random.Random(f"{seed} {number}")
        self.ended: dict[str, ErrorKind | None] = {}
        """By request id; CANCELLED for those that were left."""

    async def send(self, count: int) -> None:
        for step in range(count):
            await self._send_one(f"{self._number}-{step}{'bad' if self._random.random() < 0.1 else ''}")

    async def _send_one(self, text: str) -> None:
        model = self._random.choice(NAMES)
        how = self._random.choice(("stay", "stay", "stay", "late", "cancel", "go"))
        gone = asyncio.Event()

        async def departure() -> None:
            await gone.wait()

        caller = RequestInfo(
            protocol="test",
            request_id=text,
            returned={},
            timeout=self._random.random() * 0.01 + 1e-4 if how == "late" else None,
            gone=departure,
        )
        work = asyncio.create_task((self._stream if model == "spoken" else self._exchange)(caller, model, text))
        if how in ("cancel", "go"):
            for _ in range(self._random.randrange(1, 7)):
                await asyncio.sleep(0)
            if how == "go":
                gone.set()
            else:
                work.cancel()
        try:
            await work
        except InferenceError as error:
            self.ended[text] = error.kind
        except asyncio.CancelledError:
            self.ended[text] = ErrorKind.CANCELLED
        else:
            self.ended[text] = None

    async def _exchange(self, caller: RequestInfo, model: str, text: str) -> None:
        assert await self._engine.exchange(caller, model, lambda: asked(model, text), said) == text

    async def _stream(self, caller: RequestInfo, model: str, text: str) -> None:
        async with aclosing(self._engine.stream(caller, model, lambda: asked(model, text))) as pieces:
            assert [each.text async for each in pieces] == [*[text] * 80, ""]


async def idle(engine: Engine) -> None:
    await wait_until_async(lambda: not engine.busy)


@pytest.mark.parametrize("seed", range(2))
def test_every_request_ends_once_and_as_its_sender_was_told(seed: int) -> None:
    seen = Seen()
    others = set(threading.enumerate())

    async def run(engine: Engine) -> dict[str, ErrorKind | None]:
        senders = [Sender(engine, number, seed) for number in range(40)]
        await asyncio.gather(*(each.send(8) for each in senders))
        await idle(engine)
        # The next request finds an engine as good as new.
        assert await engine.exchange(
            RequestInfo(protocol="t", request_id="last"), "plain", lambda: asked("plain", "x"), said
        )
        return {name: kind for each in senders for name, kind in each.ended.items()}

    with engine_of(seed, seen) as engine:
        ended = asyncio.run(run(engine))
        threads = [each for each in set(threading.enumerate()) - others if each.name.startswith("inference")]
    assert len(threads) <= 2 * WORKERS + WAITING
    told = Counter(event.caller.request_id for event in seen.events)
    assert set(told) == {*ended, "last"}
    assert set(told.values()) == {1}
    outcomes = {event.caller.request_id: event.outcome for event in seen.events}
    for name, kind in ended.items():
        # Whoever leaves at the last moment may leave an answer behind, or part of one, or what went wrong.
        lost = kind in (ErrorKind.CANCELLED, ErrorKind.DEADLINE_EXCEEDED)
        may_be = {kind, None, ErrorKind.OVERLOADED, ErrorKind.MODEL_FAILED} if lost else {kind}
        assert outcomes[name] in may_be, (name, kind, outcomes[name])
    assert {None, ErrorKind.CANCELLED, ErrorKind.MODEL_FAILED, ErrorKind.OVERLOADED} <= set(ended.values())


@pytest.mark.parametrize("seed", range(2))
def test_a_stop_in_the_midst_of_it_leaves_nobody_without_an_answer(seed: int) -> None:
    seen = Seen()

    async def run(engine: Engine) -> dict[str, ErrorKind | None]:
        senders = [Sender(engine, number, seed) for number in range(40)]
        sending = [asyncio.create_task(each.send(6)) for each in senders]
        await wait_until_async(lambda: len(seen.events) >= 60)
        engine.close()
        async with asyncio.timeout(60):
            await asyncio.gather(*sending)
        await idle(engine)
        return {name: kind for each in senders for name, kind in each.ended.items()}

    with engine_of(seed, seen) as engine:
        ended = asyncio.run(run(engine))
    assert Counter(event.caller.request_id for event in seen.events) == Counter(ended.keys())
    assert len(ended) == 240
    assert ErrorKind.MODEL_NOT_READY in ended.values()


def test_a_swamped_model_costs_another_neither_its_places_nor_its_pace() -> None:
    seen, go_on = Seen(), threading.Event()

    def held_up(response: InferenceResponse) -> str:
        assert go_on.wait(120)
        return said(response)

    async def run(engine: Engine) -> None:
        held = [
            asyncio.create_task(engine.exchange(_caller(f"s{n}"), "plain", lambda: asked("plain", "x"), held_up))
            for n in range(12)
        ]
        await wait_until_async(lambda: engine.in_flight == 12)
        try:
            for number in range(20):
                # It says how long it will wait; that the other model has much to do is nothing to it.
                caller = RequestInfo(protocol="t", request_id=f"f{number}", returned={}, timeout=60.0)
                assert await engine.exchange(caller, "gathered", lambda: asked("gathered", "y"), said) == "y"
            assert not any(each.done() for each in held)
        finally:
            go_on.set()
        assert await asyncio.gather(*held) == ["x"] * 12

    with engine_of(0, seen) as engine:
        asyncio.run(run(engine))


def _caller(name: str) -> RequestInfo:
    return RequestInfo(protocol="t", request_id=name, returned={})
