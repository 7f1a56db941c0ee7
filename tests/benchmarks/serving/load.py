"""A load on a server, from a process of its own: one request again and again, and how long each answer took.

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

import grpc
import msgspec
import uvloop

from tests.benchmarks.serving.processes import ROOT

__all__ = ("Shot", "Took", "send")


class Shot(msgspec.Struct, frozen=True):
    """One request.

    Attributes:
        port: where it goes.
        target: the path over HTTP, the full method over gRPC.
        body: the content, or the serialized message.
        headers: over HTTP.
        grpc: whether it goes over gRPC.
    """

    port: int
    target: str
    body: bytes
    headers: dict[str, str] = msgspec.field(default_factory=lambda: {"Content-Type": "application/json"})
    grpc: bool = False


class Took(msgspec.Struct, frozen=True):
    """What became of a load.

    Attributes:
        seconds: from the first request to the last answer.
        statuses: answers by their status, 0 for none.
        milliseconds: of every answer that was one, sorted.
    """

    seconds: float
    statuses: dict[int, int]
    milliseconds: list[float]

    def percentile(self, share: float) -> float:
        """Milliseconds within which that share of the answers came."""
        return self.milliseconds[min(len(self.milliseconds) - 1, int(share * len(self.milliseconds)))]

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.milliseconds) / self.seconds


def send(shot: Shot, requests: int, connections: int) -> Took:
    """A closed load. Every request must get an answer.

    Raises:
        RuntimeError: when one was not.
    """
    took = _in_a_process(shot, requests, connections)
    if sum(took.statuses.values()) != took.statuses.get(200, 0):
        raise RuntimeError(f"{shot.target}: not every request was answered: {took.statuses}")
    return took


def _in_a_process(shot: Shot, *arguments: object) -> Took:
    with NamedTemporaryFile() as file:
        Path(file.name).write_bytes(msgspec.msgpack.encode(shot))
        command = [sys.executable, "-m", "tests.benchmarks.serving.load", file.name, *map(str, arguments)]
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return msgspec.json.decode(done.stdout, type=Took, strict=False)


Exchange = Callable[[], Awaitable[int]]


class _Connection:
    """One HTTP/1.1 connection that is kept. It reads no more of an answer than it must."""

    def __init__(self, shot: Shot) -> None:
        lines = [f"POST {shot.target} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(shot.body)}"]
        lines += [f"{name}: {value}" for name, value in shot.headers.items()]
        self._request = "\r\n".join([*lines, "", ""]).encode() + shot.body
        self._port = shot.port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def exchange(self) -> int:
        """Send the request: the status of the answer, 0 when there was none."""
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=2**20)
            reader, writer = self._streams
            writer.write(self._request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            await _rest(reader, head)
            return int(head.split(b" ", 2)[1])
        except (OSError, asyncio.IncompleteReadError):
            self._streams = None
            return 0


async def _rest(reader: asyncio.StreamReader, head: bytes) -> None:
    _, found, length = head.partition(b"content-length:")
    if found:
        await reader.readexactly(int(length.split(b"\r\n", 1)[0]))
        return
    while size := int(await reader.readline(), 16):
        await reader.readexactly(size + 2)
    await reader.readline()


def _caller(shot: Shot) -> Exchange:
    """Sends over a channel of its own, over which gRPC keeps a connection of its own."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{shot.port}", options=options)
    call: Any = channel.unary_unary(shot.target)

    async def exchange() -> int:
        try:
            await call(shot.body)
        except grpc.aio.AioRpcError as error:
            return 429 if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED else 500
        return 200

    return exchange


def _exchanges(shot: Shot, connections: int) -> Sequence[Exchange]:
    if shot.grpc:
        return [_caller(shot) for _ in range(connections)]
    return [_Connection(shot).exchange for _ in range(connections)]


async def _closed(shot: Shot, requests: int, connections: int) -> Took:
    left = requests
    times: list[float] = []
    statuses: Counter[int] = Counter()

    async def go(exchange: Exchange) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            began = time.perf_counter()
            status = await exchange()
            statuses[status] += 1
            if status == 200:
                times.append((time.perf_counter() - began) * 1000)

    began = time.perf_counter()
    await asyncio.gather(*map(go, _exchanges(shot, connections)))
    return Took(time.perf_counter() - began, dict(statuses), sorted(times))


def main() -> None:
    """What `send` runs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("shot")
    parser.add_argument("requests", type=int)
    parser.add_argument("connections", type=int)
    options = parser.parse_args()
    shot = msgspec.msgpack.decode(Path(options.shot).read_bytes(), type=Shot)
    print(json.dumps(msgspec.to_builtins(uvloop.run(_closed(shot, options.requests, options.connections)))))


if __name__ == "__main__":
    main()
