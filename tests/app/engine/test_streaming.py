"""One stream: its pieces in order, never more of them than its reader has room for, and observed exactly once."""

import asyncio
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import aclosing

import pytest

from app.engine.engine import Engine
from app.engine.events import RequestInfo
from app.engine.streaming import Piece
from app.protocols.bytes_elements import BinaryElement
from tasks.exchange.error import ErrorKind, InferenceError, invalid
from tasks.exchange.request import InferenceRequest
from tasks.exchange.tensor import BytesTensor
from tasks.image_text_to_text import PromptedImage
from tasks.task import TextPiece
from tests.support.pictures import encoded, rectangle
from tests.support.polling import wait_until_async
from tests.support.speaker import Gate, Seen, Speaker, speaking

CALLER = RequestInfo(protocol="test", request_id="abc")
ROOM = 32


def request(model: str = "speaker", count: int = 1, **parameters: object) -> InferenceRequest:
    picture = BinaryElement(encoded(rectangle()))
    tensor = BytesTensor(name="a", shape=(count,), elements=[picture] * count, parameters=parameters)
    return InferenceRequest(id="body-id", model_name=model, inputs=(tensor,))


async def collected(engine: Engine, decode: Callable[[], InferenceRequest] = request) -> list[Piece]:
    async with aclosing(engine.stream(CALLER, "speaker", decode)) as pieces:
        return [piece async for piece in pieces]


def test_every_prompt_of_every_image_is_answered_piece_by_piece() -> None:
    seen = Seen()
    engine = speaking(Speaker("a", " circle"), seen)
    pieces = asyncio.run(collected(engine, lambda: request(count=2, prompts=["what?", "where?"], metadata="x")))
    said = [(piece.image, piece.prompt, piece.text, piece.final) for piece in pieces]
    answer = [("a", False), (" circle", False), ("", True)]
    assert said == [(image, prompt, *each) for image in (0, 1) for prompt in (0, 1) for each in answer]
    assert {(each.id, each.model_name, each.model_version, each.input) for each in pieces} == {
        ("body-id", "speaker", "7", "a")
    }
    assert all(dict(each.parameters) == {"metadata": "x"} for each in pieces)
    (event,) = seen.events
    assert (event.outcome, event.error, event.caller) == (None, "", CALLER)
    assert (event.model_name, event.model_version, event.batch_size) == ("speaker", "7", 2)
    assert event.timings.decode > 0
    assert event.timings.decode + event.timings.model <= event.total
    assert engine.statistics.of("speaker", "7").inference_count == 2
    assert not engine.busy


def test_a_model_that_cannot_stream_gives_each_answer_in_one_piece() -> None:
    pieces = asyncio.run(collected(speaking(Speaker()), lambda: request("teller", count=2, prompts=["size?", "eh?"])))
    assert [(each.image, each.prompt, each.text, each.final) for each in pieces] == [
        (image, prompt, "64x48", True) for image in (0, 1) for prompt in (0, 1)
    ]


def unreadable() -> InferenceRequest:
    raise invalid("Expected more", "inputs")


@pytest.mark.parametrize(
    ("decode", "kind", "message"),
    [
        (unreadable, ErrorKind.INVALID_REQUEST, "inputs: Expected more"),
        (lambda: request("nobody"), ErrorKind.MODEL_NOT_FOUND, "not known"),
        (lambda: request("detector"), ErrorKind.UNSUPPORTED, "'detector'"),
        (lambda: request(max_new_tokens=0), ErrorKind.INVALID_REQUEST, "max_new_tokens"),
        (lambda: 1 / 0, ErrorKind.INTERNAL, "abc"),
    ],
)
def test_what_is_refused_is_refused_before_the_first_piece(
    decode: Callable[[], InferenceRequest], kind: ErrorKind, message: str
) -> None:
    seen = Seen()
    engine = speaking(Speaker("a"), seen)
    with pytest.raises(InferenceError, match=message) as caught:
        asyncio.run(collected(engine, decode))
    assert caught.value.kind is kind
    assert [(event.outcome, event.error) for event in seen.events] == [(kind, str(caught.value))]
    assert not engine.busy


@pytest.mark.parametrize(
    ("failure", "kind"),
    [(RuntimeError("a wire came off"), ErrorKind.MODEL_FAILED), (invalid("too long"), ErrorKind.INVALID_REQUEST)],
)
def test_a_failure_on_the_way_comes_after_the_pieces_before_it(failure: Exception, kind: ErrorKind) -> None:
    seen, speaker, told = Seen(), Speaker("a", "b", failure), list[str]()

    async def read() -> None:
        async with aclosing(engine.stream(CALLER, "speaker", request)) as pieces:
            async for piece in pieces:
                told.append(piece.text)

    engine = speaking(speaker, seen)
    with pytest.raises(InferenceError, match=str(failure)) as caught:
        asyncio.run(read())
    assert (told, caught.value.kind) == (["a", "b"], kind)
    assert [event.outcome for event in seen.events] == [kind]
    assert speaker.closed.is_set()
    assert not engine.busy


def test_a_piece_is_told_before_the_next_is_made() -> None:
    gate = Gate()

    async def read() -> None:
        async with aclosing(engine.stream(CALLER, "speaker", request)) as pieces:
            for expected in ("a", "b", "c"):
                gate.open()
                assert (await anext(pieces)).text == expected
            assert (await anext(pieces)).final
            assert await anext(pieces, None) is None

    engine = speaking(Speaker("a", "b", "c", gate=gate))
    asyncio.run(read())


def test_a_reader_who_leaves_frees_the_worker_at_the_next_token() -> None:
    seen, gate = Seen(), Gate(opened=1)
    speaker = Speaker(*"abcdef", gate=gate)

    async def read() -> None:
        async with aclosing(engine.stream(CALLER, "speaker", request)) as pieces:
            assert (await anext(pieces)).text == "a"
            for _ in "ab":
                await asyncio.to_thread(gate.await_step)
        assert engine.busy, "the worker is at the next token"
        gate.open()
        assert await asyncio.to_thread(speaker.closed.wait, 60)
        # There is but one worker, and it answers.
        await engine.exchange(CALLER, "speaker", lambda: request("detector"), str)

    engine = speaking(speaker, seen, workers=1)
    asyncio.run(read())
    assert speaker.made == 2
    assert not engine.busy
    assert [(event.model_name, event.outcome) for event in seen.events] == [("speaker", None), ("detector", None)]


def test_a_reader_who_is_cancelled_leaves() -> None:
    seen, gate, waiting = Seen(), Gate(opened=1), asyncio.Event()
    speaker = Speaker(*"abcdef", gate=gate)

    async def read() -> None:
        async with aclosing(engine.stream(CALLER, "speaker", request)) as pieces:
            async for _ in pieces:
                waiting.set()

    async def run() -> None:
        reader = asyncio.create_task(read())
        await waiting.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        gate.open()
        assert await asyncio.to_thread(speaker.closed.wait, 60)
        await engine.exchange(CALLER, "speaker", lambda: request("detector"), str)

    engine = speaking(speaker, seen, workers=1)
    asyncio.run(run())
    assert not engine.busy
    assert len(seen.events) == 2


def test_a_slow_reader_holds_neither_a_worker_nor_more_than_there_is_room_for() -> None:
    speaker = Speaker(*(f"{number} " for number in range(1000)))

    async def read() -> list[str]:
        async with aclosing(engine.stream(CALLER, "speaker", request)) as pieces:
            told = [(await anext(pieces)).text]
            # There is but one worker, and it answers although nobody reads the stream.
            for _ in range(3):
                await engine.exchange(CALLER, "speaker", lambda: request("detector"), str)
                assert speaker.made <= len(told) + ROOM
            return told + [piece.text async for piece in pieces]

    engine = speaking(speaker, workers=1)
    assert "".join(asyncio.run(read())) == "".join(f"{number} " for number in range(1000))
    assert not engine.busy


def test_a_reader_who_leaves_a_waiting_stream_ends_it_at_once() -> None:
    seen, speaker = Seen(), Speaker(*"a" * 1000)

    async def read() -> None:
        async with aclosing(engine.stream(CALLER, "speaker", request)) as pieces:
            await anext(pieces)
            await engine.exchange(CALLER, "speaker", lambda: request("detector"), str)
        assert speaker.closed.is_set()

    engine = speaking(speaker, seen, workers=1)
    asyncio.run(read())
    assert not engine.busy
    assert [event.model_name for event in seen.events] == ["detector", "speaker"]


def test_streams_run_side_by_side() -> None:
    both = threading.Barrier(2, timeout=60)

    async def two() -> list[list[Piece]]:
        return list(await asyncio.gather(collected(engine), collected(engine)))

    engine = speaking(Speaker("a", " red", " circle", gate=both.wait))
    assert ["".join(piece.text for piece in pieces) for pieces in asyncio.run(two())] == ["a red circle"] * 2


def test_a_stream_takes_a_place_and_is_refused_without_one() -> None:
    seen, gate = Seen(), Gate(opened=1)

    async def read() -> None:
        async with aclosing(engine.stream(CALLER, "speaker", request)) as pieces:
            await anext(pieces)
            with pytest.raises(InferenceError) as caught:
                await collected(engine)
            assert caught.value.kind is ErrorKind.OVERLOADED
            gate.open()
            assert [piece.text async for piece in pieces] == ["b", ""]

    engine = speaking(Speaker("a", "b", gate=gate), seen, workers=1, max_waiting=0)
    asyncio.run(read())
    assert [event.outcome for event in seen.events] == [ErrorKind.OVERLOADED, None]


def test_a_stream_that_waits_for_a_worker_can_be_left() -> None:
    seen, gate = Seen(), Gate(opened=1)
    decoded: list[str] = []

    def decode() -> InferenceRequest:
        decoded.append("second")
        return request()

    async def read() -> None:
        async with aclosing(engine.stream(CALLER, "speaker", request)) as pieces:
            await anext(pieces)
            second = asyncio.create_task(collected(engine, decode))
            await asyncio.to_thread(lambda: None)  # the second has asked for a worker by now
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            gate.open()
            assert [piece.text async for piece in pieces] == ["b", ""]

    engine = speaking(Speaker("a", "b", gate=gate), seen, workers=1)
    asyncio.run(read())
    assert decoded == []
    assert not engine.busy
    assert [event.outcome for event in seen.events] == [ErrorKind.CANCELLED, None]


@pytest.mark.parametrize("read", [1, ROOM])
def test_whatever_a_model_raises_when_its_stream_is_closed_the_request_ends(
    read: int, caplog: pytest.LogCaptureFixture
) -> None:
    class Obstinate(Speaker):
        def stream(self, inputs: Sequence[PromptedImage], /) -> Generator[TextPiece]:
            try:
                yield from super().stream(inputs)
            finally:
                raise SystemExit(3)

    async def left() -> None:
        async with aclosing(engine.stream(CALLER, "speaker", request)) as pieces:
            for _ in range(read):
                await anext(pieces)
        await wait_until_async(lambda: not engine.busy)

    seen = Seen()
    engine = speaking(Obstinate(*"a" * 1000), seen, workers=1)
    asyncio.run(asyncio.wait_for(left(), 30))
    assert [event.outcome for event in seen.events] == [None]
    assert [each.getMessage() for each in caplog.records] == ["a stream could not be closed"]


@pytest.mark.parametrize("queued", [True, False])
def test_a_stopping_engine_ends_streams_that_have_no_worker(queued: bool) -> None:
    seen, speaker = Seen(), Speaker(*"a" * 1000)
    told: list[str] = []

    async def read() -> None:
        async with aclosing(engine.stream(CALLER, "speaker", request)) as pieces:
            if queued:
                told.append((await anext(pieces)).text)
                await engine.exchange(CALLER, "speaker", lambda: request("detector"), str)
            engine.close()
            while True:
                told.append((await anext(pieces)).text)

    engine = speaking(speaker, seen, workers=1)
    with pytest.raises(InferenceError, match="stopping") as caught:
        asyncio.run(read())
    assert caught.value.kind is ErrorKind.MODEL_NOT_READY
    assert len(told) in ((ROOM, ROOM + 1) if queued else (0,)), "what was made is told"
    assert seen.events[-1].outcome is ErrorKind.MODEL_NOT_READY
    assert not engine.busy


def test_a_stopping_engine_ends_a_stream_that_waits_for_a_worker_and_finishes_the_one_that_has_it() -> None:
    seen, gate = Seen(), Gate(opened=1)

    async def read() -> None:
        async with aclosing(engine.stream(CALLER, "speaker", request)) as pieces:
            await anext(pieces)
            second = asyncio.create_task(collected(engine))
            await asyncio.to_thread(lambda: None)  # the second has asked for a worker by now
            engine.close()
            with pytest.raises(InferenceError, match="stopping"):
                await second
            gate.open()
            assert [piece.text async for piece in pieces] == ["b", ""]

    engine = speaking(Speaker("a", "b", gate=gate), seen, workers=1)
    asyncio.run(read())
    assert not engine.busy
    assert [event.outcome for event in seen.events] == [ErrorKind.MODEL_NOT_READY, None]


@pytest.mark.parametrize("when", ["waiting", "before a piece", "halfway", "stuck"])
def test_a_stream_whose_time_is_over_is_told_so(when: str) -> None:
    seen, gate = Seen(), Gate(opened={"waiting": 0, "before a piece": 0, "halfway": 1}.get(when, 1000))
    late = RequestInfo(protocol="test", request_id="late", timeout=0.3)

    async def read() -> None:
        first = asyncio.create_task(collected(engine)) if when == "waiting" else None
        if first is not None:
            await asyncio.to_thread(gate.await_step)
        async with aclosing(engine.stream(late, "speaker", request)) as pieces:
            if when == "stuck":
                # Whoever passes the pieces on does not ask for the next one any more.
                await anext(pieces)
                await wait_until_async(lambda: not engine.busy)
            with pytest.raises(InferenceError) as caught:
                assert len([piece async for piece in pieces]) <= ROOM
        assert caught.value.kind is ErrorKind.DEADLINE_EXCEEDED
        for _ in range(1000):
            gate.open()
        if first is not None:
            await first

    engine = speaking(Speaker(*"a" * 1000, gate=gate), seen, workers=1)
    asyncio.run(read())
    outcomes = {event.caller.request_id: event.outcome for event in seen.events}
    assert outcomes.get("late", ErrorKind.DEADLINE_EXCEEDED) is ErrorKind.DEADLINE_EXCEEDED
    assert "late" in outcomes or when in ("before a piece", "halfway"), "a worker is still at it"


def test_a_stream_whose_sender_goes_before_its_first_piece_is_dropped() -> None:
    seen, gate, gone = Seen(), Gate(), asyncio.Event()

    async def departure() -> None:
        await gone.wait()

    async def read() -> None:
        async with aclosing(
            engine.stream(RequestInfo(protocol="test", request_id="left", gone=departure), "speaker", request)
        ) as pieces:
            first = asyncio.ensure_future(anext(pieces))
            await asyncio.to_thread(gate.await_step)
            gone.set()
            with pytest.raises(InferenceError, match="disconnected"):
                await first
        gate.open()
        await wait_until_async(lambda: not engine.busy)

    engine = speaking(Speaker(*"abc", gate=gate), seen, workers=1)
    asyncio.run(read())
    assert [event.outcome for event in seen.events] == [ErrorKind.CANCELLED]
