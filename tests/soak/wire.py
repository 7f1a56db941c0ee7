"""Provide cheap clients: persistent HTTP/1.1 connections, and gRPC calls with serialized messages."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import grpc
import msgspec

NO_ANSWER = 0
_TIMEOUT_SECONDS = 40.0
_IDLE_SECONDS = 2.0
"""Seconds that an idle connection is reused; servers close it later."""
_MAX_HEAD_BYTES = 2**20
_CHANNELS = 4
"""gRPC channels, each with its own connection, because calls on a channel share flow control."""
_STATUSES = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
_REFUSED = "RST_STREAM with error code 7"
"""REFUSED_STREAM (RFC 9113, 7): the server has not processed the call."""
_TRANSPORT = ("failed to connect", "socket closed", "connection re", "goaway", "stream removed", "recvmsg", "sendmsg")
"""Messages of gRPC for calls that reached no server, with the status UNAVAILABLE."""


class Ports(msgspec.Struct, frozen=True):
    """Where a server listens."""

    http: int
    grpc: int
    tensorflow_serving: int


class Answer(msgspec.Struct, frozen=True):
    """A response of any protocol.

    Attributes:
        status: as an HTTP status; `NO_ANSWER` for none.
        body: the content over HTTP, or the message over gRPC.
        headers: HTTP headers with lower-case names.
        parts: messages of a gRPC stream.
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
        return (
            time.monotonic() - self.used < _IDLE_SECONDS and not self.reader.at_eof() and not self.writer.is_closing()
        )

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
    """Clients of one server, which may be restarted.

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
        """Send one HTTP request, on a connection that is not shared meanwhile."""
        lines = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        request = "\r\n".join([*lines, "", ""]).encode() + body
        return await _with_timeout(self._exchange(request, port or self.ports.http))

    async def call(self, method: str, message: bytes, metadata: Mapping[str, str] | None = None) -> Answer:
        """Call a unary gRPC method."""

        async def send() -> Answer:
            call = self._next().unary_unary(method)
            return Answer(200, await call(message, metadata=_pairs(metadata), timeout=_TIMEOUT_SECONDS))

        return await _to_answer(send)

    async def stream(
        self, method: str, messages: Sequence[bytes], metadata: Mapping[str, str] | None = None, *, both: bool = False
    ) -> Answer:
        """Call a gRPC method that streams responses, and with `both` also requests."""

        async def send() -> Answer:
            if both:
                call = self._next().stream_stream(method)(
                    iter(messages), metadata=_pairs(metadata), timeout=_TIMEOUT_SECONDS
                )
            else:
                call = self._next().unary_stream(method)(
                    messages[0], metadata=_pairs(metadata), timeout=_TIMEOUT_SECONDS
                )
            return Answer(200, parts=[part async for part in call])

        return await _to_answer(send)

    async def close(self) -> None:
        """Close all connections."""
        self.close_idle()
        await asyncio.gather(*(channel.close() for channel in self._channels))

    def close_idle(self) -> None:
        """Close idle connections of a server that has exited."""
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
            connection = _Connection(*await asyncio.open_connection("127.0.0.1", port, limit=_MAX_HEAD_BYTES))
        try:
            answer = await connection.exchange(request)
        except BaseException:
            connection.writer.close()
            raise
        self._idle.setdefault(port, []).append(connection)
        return answer


def _pairs(metadata: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    return tuple((metadata or {}).items())


async def _with_timeout(exchange: Awaitable[Answer]) -> Answer:
    try:
        return await asyncio.wait_for(exchange, _TIMEOUT_SECONDS)
    except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError) as error:
        return Answer(NO_ANSWER, note=f"{type(error).__name__}: {error}"[:200])


async def _to_answer(send: Callable[[], Awaitable[Answer]]) -> Answer:
    try:
        return await send()
    except grpc.aio.AioRpcError as error:
        details = error.details() or ""
        if _REFUSED in details:
            return Answer(503, note=details[:200])
        not_reached = error.code() is grpc.StatusCode.UNAVAILABLE and any(w in details.lower() for w in _TRANSPORT)
        status = NO_ANSWER if not_reached else _STATUSES.get(error.code(), 500)
        return Answer(status, note=f"{error.code().name}: {details}"[:200])
