"""The stream of snapshots for the web page."""

import asyncio
import json
import signal
import socket

import httpx
import pytest
from litestar.types import Message

from app.core.engine.engine import Engine
from app.plugins.page.event_stream import EventStream
from app.plugins.page.trends import Trends
from tests.plugins.page.pages import NAMES
from tests.support.servers.asgi_connection import Connection, body
from tests.support.servers.server_process import run_server


class Listener(Connection):
    """Request the events; one that `is_stuck` never finishes to read the first."""

    def __init__(self, query: str = "", method: str = "GET") -> None:
        super().__init__("/page/events", body(), method=method, query=query)
        self.is_stuck = False
        self.turns_from_disconnect_to_sent: int | None = None
        self._body_sent = asyncio.Event()

    async def send(self, message: Message) -> None:
        await super().send(message)
        if self.bodies:
            self._body_sent.set()
            if self.is_stuck:
                await asyncio.Event().wait()
            if self.turns_from_disconnect_to_sent is not None:
                self.disconnected.set()
                for _ in range(self.turns_from_disconnect_to_sent):
                    await asyncio.sleep(0)

    async def listen(self, events: EventStream) -> asyncio.Task[None]:
        """Open a stream, and wait for its first event."""
        task = asyncio.ensure_future(self.run(events))
        await self._body_sent.wait()
        return task

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.messages[1:] if message["body"]]


@pytest.mark.parametrize(
    ("query", "window", "detail"),
    [
        ("", "60s", ""),
        ("window=60m&model=detector", "60m", "detector"),
        ("window=24h&model=%3Cb%3E", "24h", ""),
        ("model=classifier&model=detector&x=1", "60s", "classifier"),
    ],
)
def test_event_contains_a_snapshot(engine: Engine, query: str, window: str, detail: str, trends: Trends) -> None:
    async def run() -> Listener:
        events, wire = EventStream(engine, trends), Listener(query)
        task = await wire.listen(events)
        assert events.open_streams == 1
        wire.disconnected.set()
        await task
        assert events.open_streams == 0
        events.stop()
        return wire

    wire = asyncio.run(run())
    headers = dict(wire.messages[0]["headers"])
    assert wire.status == 200
    assert (headers[b"content-type"], headers[b"cache-control"]) == (b"text/event-stream", b"no-cache")
    assert wire.bodies[0].endswith(b"}\n\n")
    snapshot = json.loads(wire.bodies[0].removeprefix(b"data: "))
    assert (snapshot["window"], snapshot["detail"]["name"]) == (window, detail)
    assert [model["name"] for model in snapshot["models"]] == list(NAMES)


@pytest.mark.parametrize(
    ("query", "method", "status", "error_text"),
    [
        ("window=60", "GET", 400, "60s, 60m, 24h"),
        ("window=60s%00", "GET", 400, "window"),
        ("", "POST", 405, "GET"),
    ],
)
def test_invalid_requests_for_events_are_rejected(
    engine: Engine, query: str, method: str, status: int, error_text: str, trends: Trends
) -> None:
    wire, events = Listener(query, method), EventStream(engine, trends)
    asyncio.run(wire.run(events))
    assert wire.status == status
    assert error_text in json.loads(wire.bodies[0])["error"]
    assert events.open_streams == 0


def test_listeners_over_the_limit_are_rejected_until_one_leaves(engine: Engine, trends: Trends) -> None:
    async def run() -> None:
        events, wires = EventStream(engine, trends, max_streams=2), [Listener(), Listener()]
        tasks = [await wire.listen(events) for wire in wires]
        late = Listener()
        await late.run(events)
        assert late.status == 503
        assert "open 2 times" in json.loads(late.bodies[0])["error"]
        wires[0].disconnected.set()
        await tasks[0]
        later = Listener()
        task = await later.listen(events)
        assert later.status == 200
        events.stop()
        await asyncio.gather(task, tasks[1])

    asyncio.run(asyncio.wait_for(run(), 60))


def test_events_end_when_the_server_stops(engine: Engine, trends: Trends) -> None:
    async def run() -> None:
        events, wire = EventStream(engine, trends), Listener()
        task = await wire.listen(events)
        events.stop()
        await task
        assert wire.messages[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
        late = Listener()
        await late.run(events)
        assert late.status == 503

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("ending", ["patience", "stop", "gone"])
def test_listener_that_reads_nothing_is_dropped(engine: Engine, ending: str, trends: Trends) -> None:
    async def run() -> None:
        events, wire = EventStream(engine, trends, send_timeout=0.05 if ending == "patience" else 60), Listener()
        wire.is_stuck = True
        task = await wire.listen(events)
        if ending == "stop":
            events.stop()
        elif ending == "gone":
            wire.disconnected.set()
        await task
        assert events.open_streams == 0
        assert len(wire.bodies) == 1
        events.stop()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_client_that_leaves_while_an_event_is_sent_frees_its_stream(engine: Engine, trends: Trends) -> None:
    async def run(turns: int) -> None:
        events, wire = EventStream(engine, trends), Listener()
        wire.turns_from_disconnect_to_sent = turns
        await wire.run(events)
        assert events.open_streams == 0
        assert len(wire.bodies) == 1
        events.stop()

    for turns in range(8):
        asyncio.run(asyncio.wait_for(run(turns), 20))


@pytest.mark.slow
def test_open_event_streams_show_the_process_and_do_not_delay_the_stop_of_the_server() -> None:
    with run_server("--model", "fixtures/models/classifier", "--drain-timeout", "600") as server:
        port = int(server.address.rpartition(":")[2])
        with httpx.stream(
            "GET", f"{server.address}/page/events", headers={"accept-encoding": "gzip"}, timeout=60
        ) as response:
            assert "content-encoding" not in response.headers
            lines = response.iter_lines()
            first, gap, second = next(lines), next(lines), next(lines)
            assert json.loads(first.removeprefix("data: "))["age"] <= json.loads(second.removeprefix("data: "))["age"]
            assert gap == ""
            snapshots = (json.loads(line.removeprefix("data: ")) for line in lines if line)
            measured = next(snapshot for snapshot in snapshots if snapshot["now"]["memory"])
            assert 2**20 < measured["now"]["memory"] < measured["machine_memory"]
            assert 0 <= measured["now"]["cpu"] < 100
            # A second client sends a request but reads nothing.
            with socket.create_connection(("127.0.0.1", port)) as silent:
                silent.sendall(b"GET /page/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                assert silent.recv(12) == b"HTTP/1.1 200"
                # A stop that waits for the event streams would take ten minutes.
                server.process.send_signal(signal.SIGTERM)
                assert server.wait() == 0
            assert list(lines)[-1:] in ([], [""])
