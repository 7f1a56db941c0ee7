"""Streams, bodies and clients that leave, in the application that answers inferences."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from app.core.engine.engine import Engine
from app.core.protocols.inference_call import Stream
from app.core.protocols.protocol import Endpoint, HttpProtocol, infer_endpoint
from app.core.server.auth.http_access import HttpAccess
from app.core.server.http.exchange import Bodies
from app.core.server.http.inference_app import InferenceApp
from app.core.server.http.route_table import RouteTable
from tasks.inference.error import InferenceError, invalid
from tests.support.servers.asgi_connection import Connection, body
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


def request(*messages: dict[str, Any], length: int | None = None) -> Connection:
    headers = () if length is None else ((b"content-length", b"%d" % length),)
    return Connection("/stream", *messages, headers=(*headers, (b"expect", b"100-continue")))


def answer(connection: Connection, bodies: Bodies | None = None) -> Streaming:
    async def other(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("a request that is no inference")

    async def run() -> None:
        engine = build_engine(("detector",))
        routes = RouteTable(engine, [protocol])
        app: Any = InferenceApp(engine, routes, other, HttpAccess(None), bodies or Bodies(1000), write_timeout=60)
        await connection.run(app)

    protocol = Streaming()
    asyncio.run(run())
    return protocol


def test_stream_is_sent_in_parts_and_its_outputs_are_closed() -> None:
    connection = request(body(b"abc"))
    assert answer(connection).closed == 1
    assert (connection.status, connection.body) == (200, b"abc.")
    assert len(connection.messages) == 6
    assert (b"content-type", b"text/event-stream; charset=utf-8") in connection.messages[0]["headers"]


def test_error_before_the_first_part_has_its_status_and_a_later_one_is_the_last_part() -> None:
    first, later = request(body(b"?a")), request(body(b"a?"))
    answer(first)
    assert (first.status, first.body) == (400, b"Expected no question")
    assert answer(later).closed == 1
    assert (later.status, later.body) == (200, b"a<Expected no question>")


def test_client_that_leaves_inside_its_body_gets_no_response() -> None:
    connection = request(body(b"a", more=True), {"type": "http.disconnect"})
    answer(connection)
    assert connection.messages == []


@pytest.mark.parametrize(
    ("connection", "bodies", "status"),
    [
        (request(length=1001), Bodies(1000), 413),
        (request(body(b"a" * 600, more=True), body(b"a" * 600)), Bodies(1000), 413),
        (request(body(b"a", more=True)), Bodies(1000, timeout=0.05), 408),
        (request(body(b"a" * 70_000)), Bodies(100_000, max_bytes=10), 503),
    ],
    ids=["length", "chunks", "slow", "memory"],
)
def test_rejected_body_closes_the_connection_and_is_no_longer_counted(
    connection: Connection, bodies: Bodies, status: int
) -> None:
    answer(connection, bodies)
    assert connection.status == status
    assert (b"connection", b"close") in connection.messages[0]["headers"]
    assert not connection.messages[-1]["more_body"]
    assert bodies.size == 0


def test_bodies_that_are_incomplete_at_the_end_of_the_drain_are_rejected() -> None:
    connection, bodies = request(body(b"a", more=True)), Bodies(1000)
    bodies.reject_incomplete_at(0.0)
    answer(connection, bodies)
    assert connection.status == 503
    assert b"has not arrived in full" in connection.body
