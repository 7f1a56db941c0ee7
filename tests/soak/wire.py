"""Ways to a server that cost little: HTTP/1.1 connections that are kept, and gRPC calls of bytes."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import grpc
import msgspec

__all__ = ("NO_ANSWER", "Answer", "Ports", "Wire")

NO_ANSWER = 0
_PATIENCE = 40.0
_KEPT = 2.0
"""Seconds that an idle connection is used again: servers close theirs a while later."""
_LONGEST_HEAD = 2**20
_CHANNELS = 4
"""Of gRPC, each with a connection of its own: calls of one share its flow control."""
_STATUSES = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
_REFUSED = "RST_STREAM with error code 7"
"""REFUSED_STREAM (RFC 9113, 7): a server that runs says that it did not begin on the call."""
_TRANSPORT = ("failed to connect", "socket closed", "connection re", "goaway", "stream removed", "recvmsg", "sendmsg")
"""What gRPC says of calls that no server answered; all of it comes with UNAVAILABLE."""


class Ports(msgspec.Struct, frozen=True):
    """Where a server listens."""

    http: int
    grpc: int
    tensorflow_serving: int


class Answer(msgspec.Struct, frozen=True):
    """What came back.

    Attributes:
        status: in HTTP's numbers; `NO_ANSWER` for none.
        body: of HTTP the content, of gRPC the message.
        headers: of HTTP, names in lower case.
        parts: of a gRPC stream its messages.
        note: why there was no answer.
    """

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}
    parts: Sequence[bytes] = ()
    note: str = ""


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.used = time.monotonic()

    @property
    def usable(self) -> bool:
        return time.monotonic() - self.used < _KEPT and not self.reader.at_eof() and not self.writer.is_closing()

    async def exchange(self, request: bytes) -> Answer:
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        if headers.get("transfer-encoding") == "chunked":
            body = await self._chunks()
        else:
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        self.used = time.monotonic()
        if headers.get("connection", "").lower() == "close":
            self.writer.close()
        return Answer(int(first.split(" ", 2)[1]), body, headers)

    async def _chunks(self) -> bytes:
        parts: list[bytes] = []
        while size := int(await self.reader.readline(), 16):
            parts.append((await self.reader.readexactly(size + 2))[:-2])
        await self.reader.readline()
        return b"".join(parts)


class Wire:
    """All ways to one server, which may go away and come back.

    Args:
        ports: the current ports of the server.
    """

    def __init__(self, ports: Ports) -> None:
        self.ports = ports
        self._idle: dict[int, list[_Connection]] = {}
        options = [
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 200),
            ("grpc.max_receive_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        address = f"127.0.0.1:{ports.grpc}"
        self._channels = [grpc.aio.insecure_channel(address, options=options) for _ in range(_CHANNELS)]
        self._turn = itertools.cycle(self._channels)

    async def http(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> Answer:
        """One exchange over HTTP, on a connection of its own while it lasts."""
        lines = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        request = "\r\n".join([*lines, "", ""]).encode() + body
        return await _in_time(self._exchange(request, port or self.ports.http))

    async def call(self, method: str, message: bytes, metadata: Mapping[str, str] | None = None) -> Answer:
        """One gRPC call of one message."""

        async def ask() -> Answer:
            call = self._next().unary_unary(method)
            return Answer(200, await call(message, metadata=_pairs(metadata), timeout=_PATIENCE))

        return await _as_called(ask)

    async def stream(
        self, method: str, messages: Sequence[bytes], metadata: Mapping[str, str] | None = None, *, both: bool = False
    ) -> Answer:
        """One gRPC call that is answered by a stream, and with `both` asks by one too."""

        async def ask() -> Answer:
            if both:
                call = self._next().stream_stream(method)(iter(messages), metadata=_pairs(metadata), timeout=_PATIENCE)
            else:
                call = self._next().unary_stream(method)(messages[0], metadata=_pairs(metadata), timeout=_PATIENCE)
            return Answer(200, parts=[part async for part in call])

        return await _as_called(ask)

    async def close(self) -> None:
        """Let go of everything."""
        self.forget()
        await asyncio.gather(*(channel.close() for channel in self._channels))

    def forget(self) -> None:
        """Close idle connections, which a server that went away has left behind."""
        for connections in self._idle.values():
            for connection in connections:
                connection.writer.close()
        self._idle.clear()

    def _next(self) -> Any:
        return next(self._turn)

    async def _exchange(self, request: bytes, port: int) -> Answer:
        idle = self._idle.setdefault(port, [])
        connection = None
        while idle and connection is None:
            connection = idle.pop()
            if not connection.usable:
                connection.writer.close()
                connection = None
        if connection is None:
            connection = _Connection(*await asyncio.open_connection("127.0.0.1", port, limit=_LONGEST_HEAD))
        try:
            answer = await connection.exchange(request)
        except BaseException:
            connection.writer.close()
            raise
        self._idle.setdefault(port, []).append(connection)
        return answer


def _pairs(metadata: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    return tuple((metadata or {}).items())


async def _in_time(exchange: Awaitable[Answer]) -> Answer:
    try:
        return await asyncio.wait_for(exchange, _PATIENCE)
    except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError) as error:
        return Answer(NO_ANSWER, note=f"{type(error).__name__}: {error}"[:200])


async def _as_called(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    try:
        return await ask()
    except grpc.aio.AioRpcError as error:
        details = error.details() or ""
        if _REFUSED in details:
            return Answer(503, note=details[:200])
        unreached = error.code() is grpc.StatusCode.UNAVAILABLE and any(w in details.lower() for w in _TRANSPORT)
        status = NO_ANSWER if unreached else _STATUSES.get(error.code(), 500)
        return Answer(status, note=f"{error.code().name}: {details}"[:200])
