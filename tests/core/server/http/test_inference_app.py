"""Streams, bodies and clients that leave, in the application that answers inferences."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from app.core.engine.engine import Engine
from app.core.protocols.inference_call import Stream
from app.core.protocols.protocol import Endpoint, HttpProtocol, infer_endpoint
from app.core.server.auth.http_access import HttpAccess
from app.core.server.http.bodies import Bodies
from app.core.server.http.inference_app import InferenceApp
from tasks.inference.error import InferenceError, invalid
from tests.support.servers.grpc_server import build_engine


class Streaming(HttpProtocol):
    """Stream the bytes of the body one by one, and fail at a question mark."""

    name = "streaming"

    def __init__(self) -> None:
        self.closed = 0

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        return [infer_endpoint("/stream", start=self._start, queue_model=lambda _: "detector")]

    def error_body(self, error: InferenceError, /) -> bytes:
        return str(error).encode()

    def _start(self, _: object, body: bytes, __: object) -> Stream:
        async def outputs() -> AsyncGenerator[bytes]:
            try:
                for byte in body:
                    if byte == ord("?"):
                        raise invalid("Expected no question")
                    yield bytes([byte])
            finally:
                self.closed += 1

        return Stream(outputs=outputs(), encode_error=lambda error: f"<{error}>".encode(), encode_end=lambda: b".")


class Exchange:
    """One request to an application, and the messages of its response."""

    def __init__(self, *messages: dict[str, Any], path: str = "/stream", length: int | None = None) -> None:
        self.sent: list[dict[str, Any]] = []
        self._messages = list(messages)
        headers = [(b"host", b"a")]
        if length is not None:
            headers.append((b"content-length", b"%d" % length))
        self.scope: dict[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": headers,
            "client": ("127.0.0.1", 1),
        }

    async def receive(self) -> dict[str, Any]:
        if not self._messages:
            await asyncio.Event().wait()
        return self._messages.pop(0)

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int:
        return self.sent[0]["status"]

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent[1:])


def body(content: bytes = b"", *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": content, "more_body": more}


def answer(exchange: Exchange, bodies: Bodies | None = None) -> Streaming:
    async def other(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("a request that is no inference")

    async def run() -> None:
        app: Any = InferenceApp(
            build_engine(("detector",)), [protocol], other, HttpAccess(None), bodies or Bodies(1000), write_timeout=60
        )
        await app(exchange.scope, exchange.receive, exchange.send)

    protocol = Streaming()
    asyncio.run(run())
    return protocol


def test_stream_is_sent_in_parts_and_its_outputs_are_closed() -> None:
    exchange = Exchange(body(b"abc"))
    assert answer(exchange).closed == 1
    assert (exchange.status, exchange.body) == (200, b"abc.")
    assert len(exchange.sent) == 6
    assert (b"content-type", b"text/event-stream; charset=utf-8") in exchange.sent[0]["headers"]


def test_error_before_the_first_part_has_its_status_and_a_later_one_is_the_last_part() -> None:
    first, later = Exchange(body(b"?a")), Exchange(body(b"a?"))
    answer(first)
    assert (first.status, first.body) == (400, b"Expected no question")
    assert answer(later).closed == 1
    assert (later.status, later.body) == (200, b"a<Expected no question>")


def test_client_that_leaves_inside_its_body_gets_no_response() -> None:
    exchange = Exchange(body(b"a", more=True), {"type": "http.disconnect"})
    answer(exchange)
    assert exchange.sent == []


@pytest.mark.parametrize(
    ("exchange", "bodies", "status"),
    [
        (Exchange(length=1001), Bodies(1000), 413),
        (Exchange(body(b"a" * 600, more=True), body(b"a" * 600)), Bodies(1000), 413),
        (Exchange(body(b"a", more=True)), Bodies(1000, timeout=0.05), 408),
        (Exchange(body(b"a" * 70_000)), Bodies(100_000, max_bytes=10), 503),
    ],
    ids=["length", "chunks", "slow", "memory"],
)
def test_rejected_body_closes_the_connection_and_is_no_longer_counted(
    exchange: Exchange, bodies: Bodies, status: int
) -> None:
    exchange.scope["headers"].append((b"expect", b"100-continue"))
    answer(exchange, bodies)
    assert exchange.status == status
    assert (b"connection", b"close") in exchange.sent[0]["headers"]
    assert not exchange.sent[-1]["more_body"]
    assert bodies.size == 0


def test_bodies_that_are_incomplete_at_the_end_of_the_drain_are_rejected() -> None:
    exchange, bodies = Exchange(body(b"a", more=True)), Bodies(1000)
    exchange.scope["headers"].append((b"expect", b"100-continue"))
    bodies.reject_incomplete_at(0.0)
    answer(exchange, bodies)
    assert exchange.status == 503
    assert b"has not arrived in full" in exchange.body
