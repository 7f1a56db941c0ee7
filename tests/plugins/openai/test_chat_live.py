"""Test streamed answers over raw ASGI: when events are sent, disconnects and slow readers."""

import asyncio
import json
from typing import Any

import pytest

from tasks.inference.error import ErrorKind
from tests.support.data.images import encode_base64, encode_image, rectangle
from tests.support.models.scripted_model import EventRecorder, Gate, ScriptedModel, scripted_engine
from tests.support.polling import wait_until_async
from tests.support.servers.apps import app_of_protocol
from tests.support.servers.asgi_connection import Connection, body

CHAT = "/openai/v1/chat/completions"
IMAGE = f"data:image/png;base64,{encode_base64(encode_image(rectangle()))}"


def request_of(model: str, *, stream: bool = False) -> dict[str, Any]:
    content = [{"type": "image_url", "image_url": {"url": IMAGE}}, {"type": "text", "text": "what?"}]
    members = {"model": model, "stream": stream, "messages": [{"role": "user", "content": content}]}
    return body(json.dumps(members).encode())


STREAM = request_of("speaker", stream=True)


async def next_text(connection: Connection) -> str:
    """Return the text of the next part of an answer."""
    message: Any = await connection.sent.get()
    assert message["more_body"]
    *events, rest = message["body"].split(b"\n\n")
    assert rest == b""
    deltas = [json.loads(event.removeprefix(b"data: "))["choices"][0]["delta"] for event in events]
    return "".join(delta["content"] for delta in deltas)


async def read_end(connection: Connection) -> None:
    """Read the events at the end of an answer, and the end of the body."""
    end: Any = await connection.sent.get()
    assert end["body"].endswith(b"data: [DONE]\n\n")
    last: Any = await connection.sent.get()
    assert (last["body"], last["more_body"]) == (b"", False)


def test_event_is_sent_before_the_next_is_generated() -> None:
    gate = Gate()
    app = app_of_protocol(scripted_engine(ScriptedModel("a", "b", "c", gate=gate)), "openai")

    async def run() -> None:
        connection = Connection(CHAT, STREAM)
        running = asyncio.create_task(connection.run(app))
        for index, expected in enumerate(("a", "b", "c")):
            gate.open()
            if index == 0:
                assert (await connection.sent.get())["type"] == "http.response.start"
            assert await next_text(connection) == expected
        await read_end(connection)
        await running

    asyncio.run(run())


@pytest.mark.parametrize("started", [True, False])
def test_disconnect_during_a_stream_frees_the_worker(started: bool) -> None:
    seen, gate = EventRecorder(), Gate(initial_passes=1)
    speaker = ScriptedModel(*"abcdef", gate=gate)
    engine = scripted_engine(speaker, seen, workers=1)
    app = app_of_protocol(engine, "openai")

    async def run() -> None:
        connection = Connection(CHAT, STREAM)
        if not started:
            connection.disconnected.set()
        running = asyncio.create_task(connection.run(app))
        assert (await connection.sent.get())["type"] == "http.response.start"
        if started:
            assert await next_text(connection) == "a"
            for _ in "ab":
                await asyncio.to_thread(gate.wait_for_arrival)
            connection.disconnected.set()
        await running
        gate.open()
        assert await asyncio.to_thread(speaker.closed.wait, 60)
        other = Connection(CHAT, request_of("teller"))
        await other.run(app)

    asyncio.run(run())
    assert speaker.chunk_count == 2 if started else speaker.chunk_count <= 2, "generation stops at the next token"
    assert not engine.busy
    assert [(event.model_name, event.outcome) for event in seen.events] == [("speaker", None), ("teller", None)]


@pytest.mark.parametrize("started", [True, False])
def test_disconnect_before_a_complete_answer_is_observed_as_cancelled(started: bool) -> None:
    seen, gate = EventRecorder(), Gate(initial_passes=started)
    speaker = ScriptedModel(*"abcdef", gate=gate)
    engine = scripted_engine(speaker, seen, workers=1)
    app = app_of_protocol(engine, "openai")

    async def run() -> None:
        connection = Connection(CHAT, request_of("speaker"))
        running = asyncio.create_task(connection.run(app))
        for _ in range(1 + started):
            await asyncio.to_thread(gate.wait_for_arrival)
        connection.disconnected.set()
        await running
        gate.open()
        assert await asyncio.to_thread(speaker.closed.wait, 60)
        await wait_until_async(lambda: not engine.busy)

    asyncio.run(run())
    assert [event.outcome for event in seen.events] == [ErrorKind.CANCELLED]
