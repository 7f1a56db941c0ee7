"""Test streamed answers over raw ASGI: when events are sent, disconnects and slow readers."""

import asyncio
import json
import threading
from typing import Any, cast

import pytest
from litestar import Litestar
from litestar.types import HTTPScope, Message
from prometheus_client import CollectorRegistry

from app.core.engine.engine import Engine
from app.core.server.http.asgi import create_app
from tasks.inference.error import ErrorKind
from tests.support.data.images import encode_base64, encode_image, rectangle
from tests.support.models.scripted_model import EventRecorder, Gate, ScriptedModel, scripted_engine
from tests.support.polling import wait_until_async
from tests.support.protocols import main_port_protocols

REQUEST = {"text_input": "what?", "image": encode_base64(encode_image(rectangle()))}


def build_app(engine: Engine) -> Litestar:
    return create_app(engine, main_port_protocols("chariot-v2"), CollectorRegistry(), 2_000_000)


class Connection:
    """Send one HTTP request to the application directly, to see each message when it is sent."""

    def __init__(self, app: Litestar, path: str, body: object) -> None:
        self._app = app
        self._path = path
        self._body = json.dumps(body).encode()
        self._received = False
        self.disconnected = asyncio.Event()
        self.sent: asyncio.Queue[Message] = asyncio.Queue()

    async def receive(self) -> Any:
        if not self._received:
            self._received = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self.disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await self.sent.put(message)
        if message["type"] == "http.response.body" and not message["more_body"]:
            self.disconnected.set()

    async def run(self) -> None:
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": self._path,
            "raw_path": self._path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [
                (b"host", b"127.0.0.1"),
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(self._body)),
            ],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "state": {},
        }
        await self._app(cast("HTTPScope", scope), self.receive, self.send)

    async def event(self) -> dict[str, Any]:
        """Return the next event."""
        message = await self.sent.get()
        assert message["type"] == "http.response.body"
        assert message["more_body"]
        head, rest = message["body"].split(b"\n\n")
        assert rest == b""
        return json.loads(head.removeprefix(b"data: "))


def test_event_is_sent_before_the_next_is_generated() -> None:
    gate = Gate()
    app = build_app(scripted_engine(ScriptedModel("a", "b", "c", gate=gate)))

    async def run() -> None:
        connection = Connection(app, "/v2/models/speaker/generate_stream", REQUEST)
        running = asyncio.create_task(connection.run())
        for index, expected in enumerate(("a", "b", "c")):
            gate.open()
            if index == 0:
                assert (await connection.sent.get())["type"] == "http.response.start"
            assert (await connection.event())["text_output"] == expected
        last: Any = await connection.sent.get()
        assert (last["body"], last["more_body"]) == (b"", False)
        await running

    asyncio.run(run())


def test_two_streams_run_concurrently() -> None:
    barrier = threading.Barrier(2, timeout=60)
    app = build_app(scripted_engine(ScriptedModel("a", "b", "c", gate=barrier.wait)))

    async def run() -> None:
        connections = [Connection(app, "/v2/models/speaker/generate_stream", REQUEST) for _ in range(2)]
        await asyncio.gather(*(connection.run() for connection in connections))
        for connection in connections:
            assert (await connection.sent.get())["type"] == "http.response.start"
            assert [(await connection.event())["text_output"] for _ in range(3)] == ["a", "b", "c"]

    asyncio.run(run())


@pytest.mark.parametrize("started", [True, False])
def test_disconnect_during_a_stream_frees_the_worker(started: bool) -> None:
    seen, gate = EventRecorder(), Gate(initial_passes=1)
    speaker = ScriptedModel(*"abcdef", gate=gate)
    engine = scripted_engine(speaker, seen, workers=1)
    app = build_app(engine)

    async def run() -> None:
        connection = Connection(app, "/v2/models/speaker/generate_stream", REQUEST)
        if not started:
            connection.disconnected.set()
        running = asyncio.create_task(connection.run())
        assert (await connection.sent.get())["type"] == "http.response.start"
        if started:
            assert (await connection.event())["text_output"] == "a"
            for _ in "ab":
                await asyncio.to_thread(gate.wait_for_arrival)
            connection.disconnected.set()
        await running
        gate.open()
        assert await asyncio.to_thread(speaker.closed.wait, 60)
        other = Connection(app, "/v2/models/teller/generate", REQUEST)
        await other.run()

    asyncio.run(run())
    assert speaker.chunk_count == 2 if started else speaker.chunk_count <= 2, "generation stops at the next token"
    assert not engine.busy
    assert [(event.model_name, event.outcome) for event in seen.events] == [("speaker", None), ("teller", None)]


def test_slow_reader_does_not_block_a_worker() -> None:
    speaker = ScriptedModel(*(f"{number} " for number in range(1000)))
    engine = scripted_engine(speaker, workers=1)
    app = build_app(engine)

    async def run() -> None:
        connection = Connection(app, "/v2/models/speaker/generate_stream", REQUEST)
        connection.sent = asyncio.Queue(maxsize=2)
        running = asyncio.create_task(connection.run())
        assert (await connection.sent.get())["type"] == "http.response.start"
        await Connection(app, "/v2/models/teller/generate", REQUEST).run()
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
    app = build_app(engine)

    async def run() -> None:
        connection = Connection(app, "/v2/models/speaker/generate", REQUEST)
        running = asyncio.create_task(connection.run())
        for _ in range(1 + started):
            await asyncio.to_thread(gate.wait_for_arrival)
        connection.disconnected.set()
        await running
        gate.open()
        assert await asyncio.to_thread(speaker.closed.wait, 60)
        await wait_until_async(lambda: not engine.busy)

    asyncio.run(run())
    assert [event.outcome for event in seen.events] == [ErrorKind.CANCELLED]
