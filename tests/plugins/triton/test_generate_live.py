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

STREAM = "/v2/models/speaker/generate_stream"
REQUEST = body(json.dumps({"text_input": "what?", "image": encode_base64(encode_image(rectangle()))}).encode())


def test_event_is_sent_before_the_next_is_generated() -> None:
    gate = Gate()
    app = app_of_protocol(scripted_engine(ScriptedModel("a", "b", "c", gate=gate)), "chariot-v2")

    async def run() -> None:
        connection = Connection(STREAM, REQUEST)
        running = asyncio.create_task(connection.run(app))
        for index, expected in enumerate(("a", "b", "c")):
            gate.open()
            if index == 0:
                assert (await connection.sent.get())["type"] == "http.response.start"
            assert (await connection.event())["text_output"] == expected
        last: Any = await connection.sent.get()
        assert (last["body"], last["more_body"]) == (b"", False)
        await running

    asyncio.run(run())


@pytest.mark.parametrize("started", [True, False])
def test_disconnect_during_a_stream_frees_the_worker(started: bool) -> None:
    seen, gate = EventRecorder(), Gate(initial_passes=1)
    speaker = ScriptedModel(*"abcdef", gate=gate)
    engine = scripted_engine(speaker, seen, workers=1)
    app = app_of_protocol(engine, "chariot-v2")

    async def run() -> None:
        connection = Connection(STREAM, REQUEST)
        if not started:
            connection.disconnected.set()
        running = asyncio.create_task(connection.run(app))
        assert (await connection.sent.get())["type"] == "http.response.start"
        if started:
            assert (await connection.event())["text_output"] == "a"
            for _ in "ab":
                await asyncio.to_thread(gate.wait_for_arrival)
            connection.disconnected.set()
        await running
        gate.open()
        assert await asyncio.to_thread(speaker.closed.wait, 60)
        other = Connection("/v2/models/teller/generate", REQUEST)
        await other.run(app)

    asyncio.run(run())
    assert speaker.chunk_count == 2 if started else speaker.chunk_count <= 2, "generation stops at the next token"
    assert not engine.busy
    assert [(event.model_name, event.outcome) for event in seen.events] == [("speaker", None), ("teller", None)]


def test_slow_reader_does_not_block_a_worker() -> None:
    speaker = ScriptedModel(*(f"{number} " for number in range(1000)))
    engine = scripted_engine(speaker, workers=1)
    app = app_of_protocol(engine, "chariot-v2")

    async def run() -> None:
        connection = Connection(STREAM, REQUEST)
        connection.sent = asyncio.Queue(maxsize=2)
        running = asyncio.create_task(connection.run(app))
        assert (await connection.sent.get())["type"] == "http.response.start"
        await Connection("/v2/models/teller/generate", REQUEST).run(app)
        assert speaker.chunk_count < 100
        texts = [(await connection.event())["text_output"] for _ in range(1000)]
        assert "".join(texts) == "".join(f"{number} " for number in range(1000))
        await connection.sent.get()
        await running

    asyncio.run(run())
    assert not engine.busy


@pytest.mark.parametrize("started", [True, False])
def test_disconnect_before_a_complete_answer_is_observed_as_cancelled(started: bool) -> None:
    seen, gate = EventRecorder(), Gate(initial_passes=started)
    speaker = ScriptedModel(*"abcdef", gate=gate)
    engine = scripted_engine(speaker, seen, workers=1)
    app = app_of_protocol(engine, "chariot-v2")

    async def run() -> None:
        connection = Connection("/v2/models/speaker/generate", REQUEST)
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
