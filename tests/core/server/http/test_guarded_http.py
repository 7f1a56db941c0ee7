"""Requests that a proxy and a server could parse differently (RFC 9112), and malformed requests."""

import random
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.support.servers.http_connections import HttpTestServer, parse_responses, read_until_closed, run_http_server

NEXT = b"GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[HttpTestServer]:
    with run_http_server() as running:
        yield running


def head(*lines: bytes, start: bytes = b"POST / HTTP/1.1") -> bytes:
    return b"\r\n".join((start, b"Host: a", *lines, b"", b""))


REFUSED = {
    "both lengths": (400, head(b"Content-Length: 3", b"Transfer-Encoding: chunked") + b"0\r\n\r\n"),
    "both lengths, the other first": (400, head(b"Transfer-Encoding: chunked", b"Content-Length: 3") + b"0\r\n\r\n"),
    "two lengths": (400, head(b"Content-Length: 3", b"Content-Length: 4") + b"abc"),
    "a length twice": (400, head(b"Content-Length: 3", b"Content-Length: 3") + b"abc"),
    "a list of lengths": (400, head(b"Content-Length: 3, 3") + b"abc"),
    "a length with a sign": (400, head(b"Content-Length: +3") + b"abc"),
    "a negative length": (400, head(b"Content-Length: -3") + b"abc"),
    "a length in hexadecimal": (400, head(b"Content-Length: 0x3") + b"abc"),
    "a length of 2 to the 64": (400, head(b"Content-Length: 18446744073709551616")),
    "an empty length": (400, head(b"Content-Length:")),
    "a folded line": (400, head(b"X: 1", b" 2")),
    "a folded encoding": (400, head(b"Transfer-Encoding:", b" chunked") + b"0\r\n\r\n"),
    "a folded upgrade": (400, head(b"Upgrade: h2c,", b" websocket")),
    "a folded upgrade before others": (400, b"GET / HTTP/1.1\r\nUpgrade: h2c,\r\n websocket\r\nHost: a\r\n\r\n"),
    "a NUL in an upgrade": (400, head(b"Upgrade: a\0b")),
    "a bare line feed in an upgrade": (400, head(b"Upgrade: a\nX: b")),
    "a space before the colon of an upgrade": (400, head(b"Upgrade : h2c")),
    "bare line feeds": (400, b"GET / HTTP/1.1\nHost: a\n\n"),
    "one bare line feed": (400, head(b"X: 1\nY: 2")),
    "a bare carriage return": (400, head(b"X: 1\rY: 2")),
    "a NUL in a value": (400, head(b"X: a\0b")),
    "a NUL in a name": (400, head(b"X\0: b")),
    "a control character": (400, head(b"X: a\x01b")),
    "a space before the colon": (400, head(b"Content-Length : 3") + b"abc"),
    "a space before the first header": (400, b"GET / HTTP/1.1\r\n Host: a\r\n\r\n"),
    "no name": (400, head(b": x")),
    "no colon": (400, head(b"foo")),
    "another coding first": (501, head(b"Transfer-Encoding: identity, chunked") + b"0\r\n\r\n"),
    "another coding in a line of its own": (
        501,
        head(b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    ),
    "chunked not last": (400, head(b"Transfer-Encoding: chunked, identity") + b"0\r\n\r\n"),
    "chunked twice": (400, head(b"Transfer-Encoding: chunked, chunked") + b"0\r\n\r\n"),
    "not quite chunked": (400, head(b"Transfer-Encoding: xchunked") + b"0\r\n\r\n"),
    "chunked behind a vertical tab": (400, head(b"Transfer-Encoding: \x0bchunked") + b"0\r\n\r\n"),
    "chunks in HTTP/1.0": (400, head(b"Transfer-Encoding: chunked", start=b"POST / HTTP/1.0") + b"0\r\n\r\n"),
    "no host": (400, b"GET / HTTP/1.1\r\n\r\n"),
    "two hosts": (400, head(b"Host: b")),
    "HTTP/0.9": (400, b"GET /\r\n\r\n"),
    "HTTP/2 in the line": (400, head(start=b"GET / HTTP/2.0")),
    "HTTP/2": (400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "TLS": (400, bytes.fromhex("160301020001000001fc0303")),
    "a proxy's method": (400, b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\nabc"),
    "no path": (400, b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a port out of range": (400, b"GET http://a:65536/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    "another scheme": (400, b"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a user in the target": (400, b"GET http://me@a/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    "bytes beyond ASCII in the path": (400, b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a method in lower case": (400, b"get / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a chunk without its end": (400, head(b"Transfer-Encoding: chunked") + b"3\r\nabcX0\r\n\r\n"),
    "chunks ended by line feeds": (400, head(b"Transfer-Encoding: chunked") + b"3\nabc\n0\n\n"),
    "an extension ended by a line feed": (400, head(b"Transfer-Encoding: chunked") + b"3;\nabc\r\n0\r\n\r\n"),
    "a chunk's size with 0x": (400, head(b"Transfer-Encoding: chunked") + b"0x3\r\nabc\r\n0\r\n\r\n"),
    "a negative chunk": (400, head(b"Transfer-Encoding: chunked") + b"-3\r\nabc\r\n0\r\n\r\n"),
    "a chunk of 2 to the 68": (400, head(b"Transfer-Encoding: chunked") + b"fffffffffffffffff\r\nabc"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_ambiguous_request_is_rejected_and_the_next_one_is_not_read(server: HttpTestServer, name: str) -> None:
    status, request = REFUSED[name]
    responses = parse_responses(server.send_and_read(request + NEXT))
    assert [code for code, _ in responses] == [status]
    assert responses[0][1]["error"]


@pytest.mark.parametrize(
    ("start", "message"),
    [(b"\x16\x03\x01", "got TLS: use http://"), (b"\0", "HTTP method"), (b"\r\nget", "HTTP method")],
)
def test_first_byte_that_begins_no_method_is_rejected_before_the_head_is_complete(
    server: HttpTestServer, start: bytes, message: str
) -> None:
    with server.connect() as connection:
        connection.sendall(start)
        [(status, body)] = parse_responses(read_until_closed(connection))
    assert status == 400
    assert message in body["error"]


@pytest.mark.parametrize(
    ("target", "host", "path"),
    [
        (b"http://b:8/x?y=1", "b:8", "/x"),
        (b"http://b", "b", "/"),
        (b"http://[::1]:8/x", "[::1]:8", "/x"),
        (b"http://[::1]/x", "[::1]", "/x"),
    ],
)
def test_absolute_target_overrides_the_host_header(server: HttpTestServer, target: bytes, host: str, path: str) -> None:
    request = b"GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % target
    [(status, body)] = parse_responses(server.send_and_read(request))
    assert (status, body["path"], body["headers"]["host"]) == (200, path, host)


def test_http_1_0_needs_no_host(server: HttpTestServer) -> None:
    assert parse_responses(server.send_and_read(b"GET / HTTP/1.0\r\n\r\n"))[0][0] == 200


def test_chunk_extensions_and_trailers_are_dropped(server: HttpTestServer) -> None:
    body = b'3;a=b;c="d"\r\nabc\r\n0\r\nX-Api-Key: k\r\nHost: b\r\n\r\n'
    (first, _) = responses = parse_responses(server.send_and_read(head(b"Transfer-Encoding: CHUNKED") + body + NEXT))
    assert first == (200, {"path": "/", "body": "abc", "headers": {"host": "a", "transfer-encoding": "CHUNKED"}})
    assert responses[1][1]["path"] == "/next"


@pytest.mark.parametrize("size", [b"Content-Length: 29", b"Transfer-Encoding: chunked"])
@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_body_of_an_upgrade_request_is_not_parsed_as_a_request(server: HttpTestServer, size: bytes, step: int) -> None:
    """Send a body that looks like a request. Java's default client offers HTTP/2 in this way."""
    body = b"GET /body HTTP/1.1\r\nHost: a\r\n\r\n"[:29]
    upgrade = head(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMA", size)
    request = upgrade + (body if size.startswith(b"C") else b"1d\r\n" + body + b"\r\n0\r\n\r\n") + NEXT
    with server.connect() as connection:
        for start in range(0, len(request), step):
            connection.sendall(request[start : start + step])
        received = read_until_closed(connection)
    first, second = parse_responses(received)
    assert (first[0], first[1]["path"], first[1]["body"]) == (200, "/", body.decode())
    assert not {"upgrade", "connection", "http2-settings"} & set(first[1]["headers"])
    assert second[1]["path"] == "/next"


def test_upgrade_request_without_body_and_the_next_request_are_answered(server: HttpTestServer) -> None:
    upgrade = head(b"Connection: Upgrade", b"Upgrade: websocket", start=b"GET /first HTTP/1.1")
    responses = parse_responses(server.send_and_read(upgrade + upgrade + NEXT))
    assert [body["path"] for _, body in responses] == ["/first", "/first", "/next"]


def test_pipelined_requests_are_answered_in_order(server: HttpTestServer) -> None:
    pipelined = b"".join(head(b"Content-Length: 1", start=b"POST /%d HTTP/1.1" % index) + b"x" for index in range(20))
    assert [body["path"] for _, body in parse_responses(server.send_and_read(pipelined + NEXT))] == [
        *(f"/{index}" for index in range(20)),
        "/next",
    ]


@pytest.mark.parametrize("seed", range(20))
def test_mutated_requests_are_answered_or_rejected_and_the_server_goes_on(server: HttpTestServer, seed: int) -> None:
    """Send requests with changed, lost and repeated bytes in chunks of random size."""
    rng = random.Random(seed)
    request = bytearray(b"".join(rng.choice(list(REFUSED.values()))[1] + NEXT for _ in range(3)))
    for _ in range(rng.randrange(8)):
        position = rng.randrange(len(request))
        request[position : position + rng.randrange(3)] = rng.choice(
            [b"", b"\r", b"\n", b"\0", b" ", b"\xff", request[position : position + 9]]
        )
    with server.connect() as connection:
        # The server closes a connection after a request that asks for it.
        with suppress(OSError):
            while request:
                size = rng.randrange(1, 400)
                connection.sendall(request[:size])
                del request[:size]
            connection.shutdown(socket.SHUT_WR)
        received = read_until_closed(connection)
    assert all(status in (200, 400, 501) for status, _ in parse_responses(received))
    assert parse_responses(server.send_and_read(NEXT))[0][0] == 200


def test_expect_100_continue_gets_an_interim_response(server: HttpTestServer) -> None:
    with server.connect() as connection:
        connection.sendall(head(b"Content-Length: 3", b"Expect: 100-continue", b"Connection: close"))
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"abc")
        received = read_until_closed(connection)
    assert parse_responses(received)[0][1]["body"] == "abc"


def test_early_response_before_the_body_leaves_the_connection_usable(server: HttpTestServer) -> None:
    request = head(b"Content-Length: 200000", start=b"POST /early HTTP/1.1") + b"x" * 200_000
    assert [body["path"] for _, body in parse_responses(server.send_and_read(request + NEXT))] == ["/early", "/next"]


def test_upgrade_in_the_packet_of_a_body_is_rejected_and_its_body_is_not_read(server: HttpTestServer) -> None:
    smuggled = head(b"Connection: close", start=b"GET /smuggled HTTP/1.1")
    upgrade = head(b"Connection: Upgrade", b"Upgrade: h2c", b"Content-Length: %d" % len(smuggled)) + smuggled
    received = server.send_and_read(head(b"Content-Length: 1", start=b"POST /first HTTP/1.1") + b"x" + upgrade)
    assert b"smuggled" not in received
    assert [body.get("path") for _, body in parse_responses(received)] == ["/first"]


def test_pipelined_requests_before_an_invalid_one_are_answered(server: HttpTestServer) -> None:
    requests = head(start=b"GET /first HTTP/1.1") + head(start=b"GET /second HTTP/1.1")
    responses = parse_responses(server.send_and_read(requests + b"GET / nonsense\r\n\r\n"))
    assert [body.get("path") for _, body in responses] == ["/first", "/second"]


def test_reset_after_pipelined_requests_cancels_the_request_in_flight(caplog: pytest.LogCaptureFixture) -> None:
    with run_http_server() as server:
        with server.connect() as connection:
            connection.sendall(head(start=b"GET /wait HTTP/1.1") + head(start=b"GET /after HTTP/1.1") * 4)
            assert server.request_started.wait(60)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert server.client_left.wait(60)
    assert not caplog.records


def test_invalid_body_of_a_request_in_flight_leaves_no_traceback(
    server: HttpTestServer, caplog: pytest.LogCaptureFixture
) -> None:
    request = head(b"Transfer-Encoding: chunked", start=b"POST /early HTTP/1.1") + b"nonsense\r\n"
    assert [status for status, _ in parse_responses(server.send_and_read(request))] == [400]
    assert [record.levelname for record in caplog.records] in ([], ["WARNING"])
