"""Send one request repeatedly from a separate process, and measure the latency of each answer.

Closed: each connection sends its next request when its last is answered.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import msgspec
import uvloop

from tests.benchmarks.serving.processes import ROOT


class BenchmarkRequest(msgspec.Struct, frozen=True):
    """One request.

    Attributes:
        port: port of the server.
        target: the path over HTTP, the full method over gRPC.
        body: the content, or the serialized message.
        headers: HTTP headers.
        grpc: whether to use gRPC.
    """

    port: int
    target: str
    body: bytes
    headers: dict[str, str] = msgspec.field(default_factory=lambda: {"Content-Type": "application/json"})
    grpc: bool = False


class LoadResult(msgspec.Struct, frozen=True):
    """The result of a load.

    Attributes:
        seconds: from the first request to the last answer.
        statuses: number of answers by status; 0 for no answer.
        milliseconds: latencies of successful answers, sorted.
    """

    seconds: float
    statuses: dict[int, int]
    milliseconds: list[float]

    def percentile(self, share: float) -> float:
        return self.milliseconds[min(len(self.milliseconds) - 1, int(share * len(self.milliseconds)))]

    @property
    def rate(self) -> float:
        return len(self.milliseconds) / self.seconds


def send(request: BenchmarkRequest, requests: int, connections: int) -> LoadResult:
    """Run a closed loop. Every request must be answered with success. Raise RuntimeError when one was not."""
    load_result = _run_in_process(request, requests, connections)
    if sum(load_result.statuses.values()) != load_result.statuses.get(200, 0):
        raise RuntimeError(f"{request.target}: not every request was answered: {load_result.statuses}")
    return load_result


def _run_in_process(request: BenchmarkRequest, *arguments: object) -> LoadResult:
    with NamedTemporaryFile() as file:
        Path(file.name).write_bytes(msgspec.msgpack.encode(request))
        command = [sys.executable, "-m", "tests.benchmarks.serving.load", file.name, *map(str, arguments)]
        process = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return msgspec.json.decode(process.stdout, type=LoadResult, strict=False)


Exchange = Callable[[], Awaitable[int]]


class _Connection:
    """A persistent HTTP/1.1 connection that parses as little of a response as possible."""

    def __init__(self, request: BenchmarkRequest) -> None:
        lines = [f"POST {request.target} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(request.body)}"]
        lines += [f"{name}: {value}" for name, value in request.headers.items()]
        self._request = "\r\n".join([*lines, "", ""]).encode() + request.body
        self._port = request.port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def exchange(self) -> int:
        """Send the request, and return the status; 0 if there was no answer."""
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=2**20)
            reader, writer = self._streams
            writer.write(self._request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            await _read_body(reader, head)
            return int(head.split(b" ", 2)[1])
        except (OSError, asyncio.IncompleteReadError):
            self._streams = None
            return 0


async def _read_body(reader: asyncio.StreamReader, head: bytes) -> None:
    _, separator, length = head.partition(b"content-length:")
    if separator:
        await reader.readexactly(int(length.split(b"\r\n", 1)[0]))
        return
    while size := int(await reader.readline(), 16):
        await reader.readexactly(size + 2)
    await reader.readline()


def _grpc_exchange(request: BenchmarkRequest) -> Exchange:
    """Return an exchange with its own gRPC channel and connection."""
    import grpc

    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{request.port}", options=options)
    call: Any = channel.unary_unary(request.target)

    async def exchange() -> int:
        try:
            await call(request.body)
        except grpc.aio.AioRpcError as error:
            return 429 if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED else 500
        return 200

    return exchange


def _exchanges(request: BenchmarkRequest, connections: int) -> Sequence[Exchange]:
    if request.grpc:
        return [_grpc_exchange(request) for _ in range(connections)]
    return [_Connection(request).exchange for _ in range(connections)]


async def _closed(request: BenchmarkRequest, requests: int, connections: int) -> LoadResult:
    remaining = requests
    times: list[float] = []
    statuses: Counter[int] = Counter()

    async def send_requests(exchange: Exchange) -> None:
        nonlocal remaining
        while remaining > 0:
            remaining -= 1
            started = time.perf_counter()
            status = await exchange()
            statuses[status] += 1
            if status == 200:
                times.append((time.perf_counter() - started) * 1000)

    started = time.perf_counter()
    await asyncio.gather(*map(send_requests, _exchanges(request, connections)))
    return LoadResult(time.perf_counter() - started, dict(statuses), sorted(times))


def main() -> None:
    """Run in the process that `send` starts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("request")
    parser.add_argument("requests", type=int)
    parser.add_argument("connections", type=int)
    options = parser.parse_args()
    request = msgspec.msgpack.decode(Path(options.request).read_bytes(), type=BenchmarkRequest)
    print(json.dumps(msgspec.to_builtins(uvloop.run(_closed(request, options.requests, options.connections)))))


if __name__ == "__main__":
    main()
