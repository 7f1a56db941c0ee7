"""What the soak's client makes of what comes back."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from soak.wire import Answer, Ports, Wire


@asynccontextmanager
async def _answering(*answers: bytes) -> AsyncGenerator[Wire]:
    """A server that answers its first requests with these bytes, and leaves after an empty one."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while left and (head := await reader.readuntil(b"\r\n\r\n")):
            assert head.startswith(b"POST /v2 HTTP/1.1\r\n")
            await reader.readexactly(2)
            answer = left.pop(0)
            if not answer:
                break
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    wire = Wire(Ports(port, port, port))
    try:
        yield wire
    finally:
        await wire.close()
        server.close()
        await server.wait_closed()


def _asked(times: int, *answers: bytes) -> list[Answer]:
    async def ask() -> list[Answer]:
        async with _answering(*answers) as wire:
            return [await wire.http("POST", "/v2", b"{}") for _ in range(times)]

    return asyncio.run(ask())


def test_answers_are_read_with_a_length_and_in_chunks() -> None:
    whole = b"HTTP/1.1 200 OK\r\nX-Request-ID: a\r\ncontent-length: 3\r\n\r\nabc"
    chunked = b"HTTP/1.1 503 No\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    first, second = _asked(2, whole, chunked)
    assert (first.status, first.body, first.headers["x-request-id"]) == (200, b"abc", "a")
    assert (second.status, second.body) == (503, b"abc")


def test_an_answer_that_breaks_off_is_none() -> None:
    (found,) = _asked(1, b"")
    assert (found.status, found.body) == (0, b"")
    assert "IncompleteReadError" in found.note


def test_a_server_that_is_not_there_gives_no_answer() -> None:
    async def ask() -> tuple[Answer, Answer]:
        wire = Wire(Ports(1, 1, 1))
        try:
            return await wire.http("GET", "/"), await wire.call("/a/b", b"")
        finally:
            await wire.close()

    assert [each.status for each in asyncio.run(ask())] == [0, 0]
