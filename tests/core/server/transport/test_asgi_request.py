"""The ASGI side of a connection: what an application sends becomes one correct HTTP response, or none."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.core.server.transport.asgi_request import AsgiRequest

DATE = (b"date", b"today")


class FakeTransport:
    """A transport that remembers what is written."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


def start(status: int = 200, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": headers}


def part(body: bytes = b"", *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


def answer(
    *messages: dict[str, Any], method: str = "GET", version: str = "1.1", keep_alive: bool = True
) -> tuple[FakeTransport, list[str]]:
    """Run an application that sends `messages`; return the transport, and an entry for a complete response."""

    async def app(_scope: Any, _receive: Any, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        for message in messages:
            await send(message)

    transport, completed = FakeTransport(), list[str]()

    async def run() -> None:
        connection = SimpleNamespace(
            transport=transport,
            connections=SimpleNamespace(default_headers=[DATE]),
            write_paused=False,
            resume_reading=lambda: None,
            on_response_complete=lambda: completed.append("complete"),
        )
        scope = {"method": method, "http_version": version, "path": "/"}
        request = AsgiRequest(scope, connection, keep_alive=keep_alive, waiting_for_100_continue=False)
        await request.run(cast("Any", app))

    asyncio.run(run())
    return transport, completed


def test_short_response_is_one_write() -> None:
    transport, completed = answer(start(200, (b"Content-Length", b"2")), part(b"ok"))
    assert transport.writes == [b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-length: 2\r\n\r\nok"]
    assert completed == ["complete"]
    assert not transport.closed


def test_body_without_a_length_is_chunked() -> None:
    transport, completed = answer(start(), part(b"one", more=True), part(more=True), part(b"three"))
    assert b"".join(transport.writes) == (
        b"HTTP/1.1 200 OK\r\ndate: today\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n5\r\nthree\r\n0\r\n\r\n"
    )
    assert completed == ["complete"]


def test_end_of_the_connection_ends_a_body_without_a_length_in_http_1_0() -> None:
    transport, completed = answer(start(), part(b"one", more=True), part(b"two"), version="1.0", keep_alive=False)
    assert b"".join(transport.writes) == b"HTTP/1.1 200 OK\r\ndate: today\r\nconnection: close\r\n\r\nonetwo"
    assert transport.closed
    assert completed == ["complete"]


def test_head_has_the_length_and_no_body() -> None:
    transport, completed = answer(start(200, (b"content-length", b"5")), part(b"12345"), method="HEAD")
    assert b"".join(transport.writes) == b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-length: 5\r\n\r\n"
    assert completed == ["complete"]


@pytest.mark.parametrize("status", [204, 304])
def test_status_without_a_body_is_not_chunked(status: int) -> None:
    transport, completed = answer(start(status), part())
    assert b"chunked" not in transport.writes[0]
    assert transport.writes[0].endswith(b"\r\n\r\n")
    assert completed == ["complete"]


@pytest.mark.parametrize(("keep_alive", "headers"), [(False, ()), (True, ((b"connection", b"close"),))])
def test_connection_is_closed_once_the_response_says_so(
    keep_alive: bool,
    headers: tuple[tuple[bytes, bytes], ...],
) -> None:
    transport, completed = answer(start(204, *headers), part(), keep_alive=keep_alive)
    assert transport.writes[0].count(b"connection: close") == 1
    assert transport.closed
    assert completed == ["complete"]


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (part(b"too early"),),
        (start(), start()),
        (start(200, (b"x y", b"1")), part()),
        (start(200, (b"x", b"1\r\nset-cookie: 2")), part()),
        (start(200, (b"content-length", b"1")), part(b"12")),
    ],
    ids=["nothing", "no head", "two heads", "name", "value", "too long"],
)
def test_wrong_use_before_the_response_is_answered_with_500(
    messages: tuple[dict[str, Any], ...], caplog: pytest.LogCaptureFixture
) -> None:
    transport, completed = answer(*messages)
    written = b"".join(transport.writes)
    assert written.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert written.endswith(b'{"error":"Something went wrong in the server; see its log"}')
    assert transport.closed
    assert completed == []
    assert len(caplog.records) == 1


def test_body_shorter_than_its_length_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    transport, completed = answer(start(200, (b"content-length", b"3")), part(b"12"))
    assert b"".join(transport.writes).endswith(b"\r\n\r\n12")
    assert transport.closed
    assert completed == []
    assert "shorter" in caplog.text
