"""Streams: chunks in order, a bounded buffer, and one observation."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

import pytest

from app.core.engine.engine import Engine
from app.core.engine.streams.text_stream import Chunk
from tasks.image_text_to_text import Answer, PromptedImage
from tasks.inference.error import ErrorKind, InferenceError, invalid
from tasks.inference.request import InferenceRequest
from tasks.task import TextChunk
from tests.core.engine import engines
from tests.core.engine.engines import new_context, stream_text
from tests.support.models.scripted_model import EventRecorder, Gate, ScriptedModel, scripted_engine
from tests.support.polling import wait_until_async
from tests.support.rejection import rejects

BUFFER_SIZE = 32


def request(model: str = "speaker", **fields: Any) -> InferenceRequest:
    return engines.request(model, **fields)


def opened(
    engine: Engine, decode: Callable[[], InferenceRequest] = request
) -> AbstractAsyncContextManager[AsyncGenerator[Chunk]]:
    return aclosing(stream_text(engine, new_context(), "speaker", decode))


async def collect(engine: Engine, decode: Callable[[], InferenceRequest] = request) -> list[Chunk]:
    async with opened(engine, decode) as chunks:
        return [chunk async for chunk in chunks]


async def detect(engine: Engine) -> None:
    """Run another request, which needs a free worker."""
    await engine.handle(new_context(), "speaker", lambda: request("detector"), str)


def test_every_prompt_of_every_image_is_streamed_in_chunks() -> None:
    observer = EventRecorder()
    engine = scripted_engine(ScriptedModel("a", " circle"), observer)
    chunks = asyncio.run(collect(engine, lambda: request(count=2, prompts=["what?", "where?"], metadata="x")))
    streamed = [(chunk.image, chunk.prompt, chunk.text, chunk.final) for chunk in chunks]
    answer = [("a", False), (" circle", False), ("", True)]
    assert streamed == [(image, prompt, *chunk) for image in (0, 1) for prompt in (0, 1) for chunk in answer]
    assert {(chunk.id, chunk.model_name, chunk.model_version, chunk.input) for chunk in chunks} == {
        ("body-id", "speaker", "7", "a")
    }
    assert all(dict(chunk.parameters) == {"metadata": "x"} for chunk in chunks)
    (event,) = observer.events
    assert (event.outcome, event.error, event.request_id) == (None, "", new_context().request_id)
    assert (event.model_name, event.model_version, event.batch_size) == ("speaker", "7", 2)
    assert event.decode_ns > 0
    assert event.decode_ns + event.model_ns <= event.total
    assert not engine.busy


def test_complete_answers_end_at_their_stop_sequences() -> None:
    observer, speaker = EventRecorder(), ScriptedModel("a ", "red ", "box", " on", " a", " table")
    engine = scripted_engine(speaker, observer)
    result = engine.registry.find("speaker").ready_servable().predict(request(count=2, stop=["box"]), engine.limits)
    assert [prediction.records()[0] for output in result.outputs for prediction in output.predictions] == [
        Answer("What is in the picture?", "a red "),
        Answer("What is in the picture?", "a red "),
    ]
    # The first answer is read to its end, because the model continues with the second one.
    assert speaker.chunk_count == 9


def unreadable() -> InferenceRequest:
    raise invalid("Expected more", "inputs")


@pytest.mark.parametrize(
    ("decode", "kind", "message"),
    [
        (unreadable, ErrorKind.INVALID_REQUEST, "inputs: Expected more"),
        (lambda: request("missing"), ErrorKind.MODEL_NOT_FOUND, "not known"),
        (lambda: request("detector"), ErrorKind.UNSUPPORTED, "'detector'"),
        (lambda: request(max_new_tokens=0), ErrorKind.INVALID_REQUEST, "max_new_tokens"),
        (lambda: 1 / 0, ErrorKind.INTERNAL, "abc"),
    ],
)
def test_invalid_request_is_rejected_before_the_first_chunk(
    decode: Callable[[], InferenceRequest], kind: ErrorKind, message: str
) -> None:
    observer = EventRecorder()
    engine = scripted_engine(ScriptedModel("a"), observer)
    with pytest.raises(InferenceError, match=message) as caught:
        asyncio.run(collect(engine, decode))
    assert caught.value.kind is kind
    assert [(event.outcome, event.error) for event in observer.events] == [(kind, str(caught.value))]
    assert not engine.busy


@pytest.mark.parametrize(
    ("failure", "kind"),
    [(RuntimeError("a wire came off"), ErrorKind.MODEL_FAILED), (invalid("too long"), ErrorKind.INVALID_REQUEST)],
)
def test_failure_during_a_stream_comes_after_the_earlier_chunks(failure: Exception, kind: ErrorKind) -> None:
    observer, speaker, texts = EventRecorder(), ScriptedModel("a", "b", failure), list[str]()

    async def read() -> None:
        async with opened(engine) as chunks:
            async for chunk in chunks:
                texts.append(chunk.text)

    engine = scripted_engine(speaker, observer)
    with pytest.raises(InferenceError, match=str(failure)) as caught:
        asyncio.run(read())
    assert (texts, caught.value.kind) == (["a", "b"], kind)
    assert [event.outcome for event in observer.events] == [kind]
    assert speaker.closed.is_set()
    assert not engine.busy


@pytest.mark.parametrize("cancelled", [False, True])
def test_reader_that_leaves_or_is_cancelled_frees_the_worker_at_the_next_token(cancelled: bool) -> None:
    observer, gate = EventRecorder(), Gate(initial_passes=1)
    speaker = ScriptedModel(*"abcdef", gate=gate)

    async def read() -> None:
        async with opened(engine) as chunks:
            assert (await anext(chunks)).text == "a"
            for _ in "ab":
                await asyncio.to_thread(gate.wait_for_arrival)
            if cancelled:
                reading.set()
                await anext(chunks)

    async def run() -> None:
        reader = asyncio.create_task(read())
        if cancelled:
            await reading.wait()
            reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader
        else:
            await reader
        assert engine.busy, "the worker is at the next token"
        gate.open()
        assert await asyncio.to_thread(speaker.closed.wait, 60)
        await detect(engine)

    engine, reading = scripted_engine(speaker, observer, workers=1), asyncio.Event()
    asyncio.run(run())
    assert speaker.chunk_count == 2
    assert not engine.busy
    assert [(event.model_name, event.outcome) for event in observer.events] == [("speaker", None), ("detector", None)]


def test_slow_reader_holds_no_worker_and_buffer_is_bounded() -> None:
    speaker = ScriptedModel(*(f"{number} " for number in range(1000)))

    async def read() -> list[str]:
        async with opened(engine) as chunks:
            texts = [(await anext(chunks)).text]
            # The only worker is free although the stream is not read.
            for _ in range(3):
                await detect(engine)
                assert speaker.chunk_count <= len(texts) + BUFFER_SIZE
            return texts + [chunk.text async for chunk in chunks]

    engine = scripted_engine(speaker, workers=1)
    assert "".join(asyncio.run(read())) == "".join(f"{number} " for number in range(1000))
    assert not engine.busy


def test_reader_that_leaves_a_paused_stream_closes_it_at_once() -> None:
    observer, speaker = EventRecorder(), ScriptedModel(*"a" * 1000)

    async def read() -> None:
        async with opened(engine) as chunks:
            await anext(chunks)
            await detect(engine)
        assert speaker.closed.is_set()

    engine = scripted_engine(speaker, observer, workers=1)
    asyncio.run(read())
    assert not engine.busy
    assert [event.model_name for event in observer.events] == ["detector", "speaker"]


@pytest.mark.parametrize("closed", [False, True])
def test_queued_stream_ends_when_it_is_cancelled_or_the_engine_closes_and_the_running_one_goes_on(closed: bool) -> None:
    observer, gate = EventRecorder(), Gate(initial_passes=1)
    decoded: list[str] = []

    def decode() -> InferenceRequest:
        decoded.append("second")
        return request()

    async def read() -> None:
        async with opened(engine) as chunks:
            await anext(chunks)
            second = asyncio.create_task(collect(engine, decode))
            await asyncio.to_thread(lambda: None)  # the second request is queued by now
            (engine.close if closed else second.cancel)()
            with pytest.raises(
                InferenceError if closed else asyncio.CancelledError, match="stopping" if closed else None
            ):
                await second
            gate.open()
            assert [chunk.text async for chunk in chunks] == ["b", ""]

    engine = scripted_engine(ScriptedModel("a", "b", gate=gate), observer, workers=1)
    asyncio.run(read())
    assert decoded == []
    assert not engine.busy
    outcome = ErrorKind.MODEL_NOT_READY if closed else ErrorKind.CANCELLED
    assert [event.outcome for event in observer.events] == [outcome, None]


@pytest.mark.parametrize("chunk_count", [1, BUFFER_SIZE])
def test_error_on_close_of_a_model_stream_is_logged_and_the_request_ends(
    chunk_count: int, caplog: pytest.LogCaptureFixture
) -> None:
    class FailsOnClose(ScriptedModel):
        def stream(self, inputs: Sequence[PromptedImage], /) -> Generator[TextChunk]:
            try:
                yield from super().stream(inputs)
            finally:
                raise SystemExit(3)

    async def read_and_leave() -> None:
        async with opened(engine) as chunks:
            for _ in range(chunk_count):
                await anext(chunks)
        await wait_until_async(lambda: not engine.busy)

    observer = EventRecorder()
    engine = scripted_engine(FailsOnClose(*"a" * 1000), observer, workers=1)
    asyncio.run(asyncio.wait_for(read_and_leave(), 30))
    assert [event.outcome for event in observer.events] == [None]
    assert [record.getMessage() for record in caplog.records] == ["a stream could not be closed"]


@pytest.mark.parametrize("queued", [True, False])
def test_close_ends_streams_without_a_worker(queued: bool) -> None:
    observer, speaker = EventRecorder(), ScriptedModel(*"a" * 1000)
    texts: list[str] = []

    async def read() -> None:
        async with opened(engine) as chunks:
            if queued:
                texts.append((await anext(chunks)).text)
                await detect(engine)
            engine.close()
            while True:
                texts.append((await anext(chunks)).text)

    engine = scripted_engine(speaker, observer, workers=1)
    with rejects("stopping", kind=ErrorKind.MODEL_NOT_READY):
        asyncio.run(read())
    assert len(texts) in ((BUFFER_SIZE, BUFFER_SIZE + 1) if queued else (0,)), "buffered chunks are delivered"
    assert observer.events[-1].outcome is ErrorKind.MODEL_NOT_READY
    assert not engine.busy


@pytest.mark.parametrize("when", ["queued", "before a chunk", "halfway", "not read"])
def test_stream_past_its_deadline_is_deadline_exceeded(when: str) -> None:
    observer, gate = (
        EventRecorder(),
        Gate(initial_passes={"queued": 0, "before a chunk": 0, "halfway": 1}.get(when, 1000)),
    )
    late_info = new_context("late", timeout=0.3)

    async def read_late(chunks: AsyncGenerator[Chunk]) -> AsyncGenerator[Chunk]:
        async for chunk in chunks:
            yield chunk
            if when == "not read":
                # The reader stops asking for chunks.
                await wait_until_async(lambda: not engine.busy)

    async def read() -> None:
        first = asyncio.create_task(collect(engine)) if when == "queued" else None
        if first is not None:
            await asyncio.to_thread(gate.wait_for_arrival)
        async with aclosing(stream_text(engine, late_info, "speaker", request)) as chunks:
            with pytest.raises(InferenceError) as caught:
                assert len([chunk async for chunk in read_late(chunks)]) <= BUFFER_SIZE + 1
        assert caught.value.kind is ErrorKind.DEADLINE_EXCEEDED
        for _ in range(1000):
            gate.open()
        if first is not None:
            await first
        await wait_until_async(lambda: not engine.busy)

    engine = scripted_engine(ScriptedModel(*"a" * 1000, gate=gate), observer, workers=1)
    asyncio.run(read())
    outcomes = {event.request_id: event.outcome for event in observer.events}
    assert outcomes["late"] is ErrorKind.DEADLINE_EXCEEDED


def test_stream_whose_client_disconnects_before_the_first_chunk_is_cancelled() -> None:
    observer, gate, disconnected = EventRecorder(), Gate(), asyncio.Event()

    async def read() -> None:
        context = new_context(disconnected=disconnected.wait)
        async with aclosing(stream_text(engine, context, "speaker", request)) as chunks:
            first = asyncio.ensure_future(anext(chunks))
            await asyncio.to_thread(gate.wait_for_arrival)
            disconnected.set()
            with pytest.raises(InferenceError, match="disconnected"):
                await first
        gate.open()
        await wait_until_async(lambda: not engine.busy)

    engine = scripted_engine(ScriptedModel(*"abc", gate=gate), observer, workers=1)
    asyncio.run(read())
    assert [event.outcome for event in observer.events] == [ErrorKind.CANCELLED]
