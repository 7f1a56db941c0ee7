"""Send a flood of requests from one process at low cost: encoded in advance, with one asyncio protocol a connection.

Closed: each connection sends its next request when the last is answered, and ignores `Retry-After`. Open:
a fixed number of requests a second, spread over the connections that are idle.
"""

import argparse
import asyncio
import json
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import cast

import msgspec
import uvloop

from tests.benchmarks.serving.processes import ROOT

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_TICK_SECONDS = 0.002
_FALLBACK_SECONDS = 0.1
_CONNECT_SECONDS = 60


class FloodResult(msgspec.Struct, frozen=True):
    """Counts of one flood.

    Attributes:
        seconds: how long it lasted.
        statuses: answers by status; 0 for a connection that ended without an answer.
        unsent: requests of an open flood that were due while no connection was idle.
    """

    seconds: float
    statuses: dict[int, int]
    unsent: int

    @property
    def goodput(self) -> float:
        return self.statuses.get(200, 0) / self.seconds

    @property
    def refused(self) -> float:
        return self.statuses.get(429, 0) / self.seconds


def request_bytes(method: str, target: str, body: bytes = b"", content_type: str = "application/json") -> bytes:
    headers = f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n" if body else ""
    return f"{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n".encode() + body


def flood(port: int, request: bytes, connections: int, seconds: float, rate: float = 0.0) -> FloodResult:
    """Send `request` over `connections` for `seconds`: a closed flood, or an open one of `rate` requests a second."""
    with NamedTemporaryFile() as file:
        Path(file.name).write_bytes(request)
        numbers = [str(value) for value in (port, connections, seconds, rate)]
        command = [sys.executable, "-m", "tests.benchmarks.serving.flood", file.name, *numbers]
        process = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return msgspec.json.decode(process.stdout, type=FloodResult, strict=False)


class _Client(asyncio.Protocol):
    """A persistent connection that is reopened when the server closes it."""

    def __init__(self, flood: "_Flood") -> None:
        self._flood = flood
        self._transport: asyncio.Transport | None = None
        self._remaining = 0
        self._received = b""
        self._waits = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._flood.on_ready(self)

    def send(self) -> None:
        self._waits = True
        assert self._transport is not None
        self._transport.write(self._flood.request)

    def data_received(self, data: bytes) -> None:
        if self._remaining:
            self._remaining -= len(data)
        else:
            self._received += data
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            length = _LENGTH.search(self._received, 0, end)
            self._remaining = end + 4 + (int(length[1]) if length else 0) - len(self._received)
            self._status = int(self._received[9:12])
            self._received = b""
        if self._remaining <= 0:
            self._remaining = 0
            self._waits = False
            self._flood.on_answer(self, self._status)

    def connection_lost(self, exc: Exception | None) -> None:
        self._received, self._remaining = b"", 0
        waited, self._waits = self._waits, False
        self._flood.on_connection_lost(self, waited=waited)


class _Flood:
    def __init__(self, port: int, request: bytes, connections: int, seconds: float, rate: float) -> None:
        self.request = request
        self._port = port
        self._connections = connections
        self._seconds = seconds
        self._rate = rate
        self._loop = asyncio.get_running_loop()
        self._idle: list[_Client] = []
        self._finished = False
        self._running = False
        self._statuses: Counter[int] = Counter()
        self._unsent = 0
        self._opening: set[asyncio.Task[object]] = set()

    async def run(self) -> FloodResult:
        for _ in range(self._connections):
            self._connect(_Client(self))
            await asyncio.sleep(0)
        async with asyncio.timeout(_CONNECT_SECONDS):
            while len(self._idle) < self._connections:
                await asyncio.sleep(0.01)
        self._running = True
        started = time.perf_counter()
        if self._rate:
            await self._run_open_loop(started)
        else:
            idle, self._idle = self._idle, []
            for client in idle:
                client.send()
            await asyncio.sleep(self._seconds)
        self._finished = True
        return FloodResult(time.perf_counter() - started, dict(self._statuses), self._unsent)

    def on_ready(self, client: _Client) -> None:
        if self._running and not self._rate:
            client.send()
        else:
            self._idle.append(client)

    def on_answer(self, client: _Client, status: int) -> None:
        if self._finished:
            return
        self._statuses[status] += 1
        self.on_ready(client)

    def on_connection_lost(self, client: _Client, *, waited: bool) -> None:
        if self._finished:
            return
        if waited:
            self._statuses[0] += 1
        if client in self._idle:
            self._idle.remove(client)
        self._loop.call_later(_FALLBACK_SECONDS if waited else 0, self._connect, client)

    def _connect(self, client: _Client) -> None:
        task: asyncio.Task[object] = self._loop.create_task(self._open_connection(client))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open_connection(self, client: _Client) -> None:
        try:
            await self._loop.create_connection(lambda: client, "127.0.0.1", self._port)
        except OSError:
            self._loop.call_later(_FALLBACK_SECONDS, self._connect, client)

    async def _run_open_loop(self, started: float) -> None:
        sent = 0
        while (elapsed := time.perf_counter() - started) < self._seconds:
            due = int(elapsed * self._rate) - sent
            sent += due
            sendable = min(due, len(self._idle))
            self._unsent += due - sendable
            for _ in range(sendable):
                self._idle.pop().send()
            await asyncio.sleep(_TICK_SECONDS)


def main() -> None:
    """Run in the process that `flood` starts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("request", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("connections", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("rate", type=float)
    options = parser.parse_args()

    async def run() -> FloodResult:
        request = options.request.read_bytes()
        return await _Flood(options.port, request, options.connections, options.seconds, options.rate).run()

    print(json.dumps(msgspec.to_builtins(uvloop.run(run()))))


if __name__ == "__main__":
    main()
