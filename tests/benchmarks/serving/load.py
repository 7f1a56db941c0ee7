"""Send one request repeatedly from a separate process, at low cost: encoded in advance, one asyncio protocol each.

Closed: each connection sends its next request when its last is answered, and ignores `Retry-After`. Open: a fixed
number of requests a second, spread over the connections that are idle.
"""

import asyncio
import re
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from typing import Any, cast

import msgspec
import uvloop

from tests.benchmarks.serving.processes import ROOT

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_TICK_SECONDS = 0.002
_FALLBACK_SECONDS = 0.1
_CONNECT_SECONDS = 60


class BenchmarkRequest(msgspec.Struct, frozen=True):
    """One request: a path and a content over HTTP, or a full method and a serialized message over gRPC."""

    port: int
    target: str
    body: bytes
    headers: dict[str, str] = msgspec.field(default_factory=lambda: {"Content-Type": "application/json"})
    grpc: bool = False

    def message(self) -> bytes:
        """Return the bytes over HTTP."""
        lines = [f"POST {self.target} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(self.body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + self.body


class LoadResult(msgspec.Struct, frozen=True):
    """The result of a load that lasted some seconds.

    `statuses` counts answers by status, and 0 those that were missing. `milliseconds` are the sorted latencies of
    successful answers. `unsent` requests of an open load were due while no connection was idle.
    """

    seconds: float
    statuses: dict[int, int]
    milliseconds: list[float]
    unsent: int = 0

    def percentile(self, share: float) -> float:
        return self.milliseconds[min(len(self.milliseconds) - 1, int(share * len(self.milliseconds)))]

    @property
    def latency(self) -> list[float]:
        """The median and the 99th percentile, in milliseconds."""
        return [self.percentile(share) for share in (0.5, 0.99)]

    @property
    def rate(self) -> float:
        """Successful answers a second."""
        return len(self.milliseconds) / self.seconds


class _Job(msgspec.Struct, frozen=True):
    """A load: `requests` of a closed one, else those of `seconds`; `rate` of an open one is not 0."""

    request: BenchmarkRequest
    connections: int
    requests: int = sys.maxsize
    seconds: float | None = None
    rate: float = 0.0


def send(request: BenchmarkRequest, requests: int, connections: int) -> LoadResult:
    """Run a closed loop. Every request must be answered with success. Raise RuntimeError when one was not."""
    result = _run_in_process(_Job(request, connections, requests))
    if result.statuses.keys() - {200}:
        raise RuntimeError(f"{request.target}: not every request was answered: {result.statuses}")
    return result


def flood(request: BenchmarkRequest, connections: int, seconds: float, rate: float = 0.0) -> LoadResult:
    """Send for some seconds: in a closed loop, or `rate` requests a second."""
    return _run_in_process(_Job(request, connections, seconds=seconds, rate=rate))


def _run_in_process(job: _Job) -> LoadResult:
    command, data = [sys.executable, "-m", "tests.benchmarks.serving.load"], msgspec.msgpack.encode(job)
    process = subprocess.run(command, cwd=ROOT, check=True, input=data, stdout=subprocess.PIPE)
    return msgspec.msgpack.decode(process.stdout, type=LoadResult)


class _Client(asyncio.Protocol):
    """A persistent connection that is opened again when the server closes it."""

    def __init__(self, load: "_Load") -> None:
        self._load = load
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._load.on_ready(self)

    def send(self, message: bytes) -> None:
        self._sent = time.perf_counter()
        assert self._transport is not None
        self._transport.write(message)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator:
            return
        length = _LENGTH.search(head)
        if len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n"):
            self._received, sent, self._sent = b"", self._sent, 0.0
            self._load.on_answer(int(head[9:12]), time.perf_counter() - sent)
            self._load.on_ready(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._received, waited, self._sent = b"", bool(self._sent), 0.0
        self._load.on_connection_lost(self, waited=waited)


class _Load:
    def __init__(self, job: _Job) -> None:
        self._job = job
        self._message = job.request.message()
        self._loop = asyncio.get_running_loop()
        self._idle: list[_Client] = []
        self._remaining = 0
        self._finished = asyncio.Event()
        self._statuses: Counter[int] = Counter()
        self._times: list[float] = []
        self._unsent = 0
        self._opening: set[asyncio.Task[object]] = set()

    async def run(self) -> LoadResult:
        for _ in range(self._job.connections):
            self._connect(_Client(self))
            await asyncio.sleep(0)
        async with asyncio.timeout(_CONNECT_SECONDS):
            while len(self._idle) < self._job.connections:
                await asyncio.sleep(0.01)
        started = time.perf_counter()
        if self._job.rate:
            await self._run_open_loop(started)
        else:
            self._remaining, idle, self._idle = self._job.requests, self._idle, []
            for client in idle:
                self.on_ready(client)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._finished.wait(), self._job.seconds)
        self._finished.set()
        return LoadResult(time.perf_counter() - started, dict(self._statuses), sorted(self._times), self._unsent)

    def on_ready(self, client: _Client) -> None:
        if self._remaining and not self._finished.is_set():
            self._remaining -= 1
            client.send(self._message)
        else:
            self._idle.append(client)

    def on_answer(self, status: int, seconds: float = 0.0) -> None:
        if self._finished.is_set():
            return
        self._statuses[status] += 1
        if status == 200:
            self._times.append(seconds * 1000)
        if sum(self._statuses.values()) == self._job.requests:
            self._finished.set()

    def on_connection_lost(self, client: _Client, *, waited: bool) -> None:
        if waited:
            self.on_answer(0)
        if client in self._idle:
            self._idle.remove(client)
        if not self._finished.is_set():
            self._loop.call_later(_FALLBACK_SECONDS if waited else 0, self._connect, client)

    def _connect(self, client: _Client) -> None:
        task: asyncio.Task[object] = self._loop.create_task(self._open_connection(client))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open_connection(self, client: _Client) -> None:
        try:
            await self._loop.create_connection(lambda: client, "127.0.0.1", self._job.request.port)
        except OSError:
            self._loop.call_later(_FALLBACK_SECONDS, self._connect, client)

    async def _run_open_loop(self, started: float) -> None:
        sent, seconds = 0, self._job.seconds or 0.0
        while (elapsed := time.perf_counter() - started) < seconds:
            due = int(elapsed * self._job.rate) - sent
            sent += due
            sendable = min(due, len(self._idle))
            self._unsent += due - sendable
            for _ in range(sendable):
                self._idle.pop().send(self._message)
            await asyncio.sleep(_TICK_SECONDS)


async def _run_grpc(job: _Job) -> LoadResult:
    """Run a closed loop over gRPC, each with a channel and connection of its own."""
    import grpc

    remaining = job.requests
    times: list[float] = []
    statuses: Counter[int] = Counter()
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]

    async def send_requests() -> None:
        nonlocal remaining
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{job.request.port}", options=options)
        call: Any = channel.unary_unary(job.request.target)
        while remaining > 0:
            remaining -= 1
            started = time.perf_counter()
            try:
                await call(job.request.body)
            except grpc.aio.AioRpcError as error:
                statuses[429 if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED else 500] += 1
            else:
                statuses[200] += 1
                times.append((time.perf_counter() - started) * 1000)

    started = time.perf_counter()
    await asyncio.gather(*(send_requests() for _ in range(job.connections)))
    return LoadResult(time.perf_counter() - started, dict(statuses), sorted(times))


async def _run(job: _Job) -> LoadResult:
    return await (_run_grpc(job) if job.request.grpc else _Load(job).run())


if __name__ == "__main__":
    sys.stdout.buffer.write(
        msgspec.msgpack.encode(uvloop.run(_run(msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Job))))
    )
