"""What two servers in a row could understand differently (RFC 9112), and what is refused before it is a request."""

import random
import socket
from collections.abc import Iterator

import pytest

from tests.support.http_connections import Served, answers, everything, served

HOST = b"Host: a\r\n"
NEXT = b"GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served() as running:
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
    "not quite chunked": (501, head(b"Transfer-Encoding: xchunked") + b"0\r\n\r\n"),
    "chunked behind a vertical tab": (400, head(b"Transfer-Encoding: \x0bchunked") + b"0\r\n\r\n"),
    "chunks in HTTP/1.0": (400, head(b"Transfer-Encoding: chunked", start=b"POST / HTTP/1.0") + b"0\r\n\r\n"),
    "no host": (400, b"GET / HTTP/1.1\r\n\r\n"),
    "two hosts": (400, head(b"Host: b")),
    "HTTP/0.9": (505, b"GET /\r\n\r\n"),
    "HTTP/2 in the line": (505, head(start=b"GET / HTTP/2.0")),
    "HTTP/2": (400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "TLS": (400, bytes.fromhex("160301020001000001fc0303")),
    "a proxy's method": (405, b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\nabc"),
    "no path": (400, b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"),
    "another scheme": (400, b"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    "somebody in the target": (400, b"GET http://me@a/ HTTP/1.1\r\nHost: a\r\n\r\n"),
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
def test_what_is_not_clear_is_refused_and_nothing_behind_it_is_read(server: Served, name: str) -> None:
    status, sent = REFUSED[name]
    found = answers(server.exchange(sent + NEXT))
    assert [each for each, _ in found] == [status]
    assert found[0][1]["error"]


def test_a_target_in_absolute_form_says_the_host(server: Served) -> None:
    sent = b"GET http://b:8/x?y=1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    [(status, body)] = answers(server.exchange(sent))
    assert (status, body["path"], body["headers"]["host"]) == (200, "/x", "b:8")


def test_a_target_that_is_a_host_alone_has_the_root_as_its_path(server: Served) -> None:
    [(_, body)] = answers(server.exchange(b"GET http://b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
    assert (body["path"], body["headers"]["host"]) == ("/", "b")


@pytest.mark.parametrize(("target", "host"), [(b"http://[::1]:8/x", "[::1]:8"), (b"http://[::1]/x", "[::1]")])
def test_a_target_in_absolute_form_may_have_an_address_of_ipv6(server: Served, target: bytes, host: str) -> None:
    sent = b"GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % target
    assert answers(server.exchange(sent))[0][1]["headers"]["host"] == host


def test_http_1_0_needs_no_host(server: Served) -> None:
    assert answers(server.exchange(b"GET / HTTP/1.0\r\n\r\n"))[0][0] == 200


def test_a_chunked_body_may_have_extensions_and_trailers_that_nobody_sees(server: Served) -> None:
    body = b'3;a=b;c="d"\r\nabc\r\n0\r\nX-Api-Key: k\r\nHost: b\r\n\r\n'
    (first, _) = found = answers(server.exchange(head(b"Transfer-Encoding: CHUNKED") + body + NEXT))
    assert first == (200, {"path": "/", "body": "abc", "headers": {"host": "a", "transfer-encoding": "CHUNKED"}})
    assert found[1][1]["path"] == "/next"


@pytest.mark.parametrize("size", [b"Content-Length: 29", b"Transfer-Encoding: chunked"])
@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_a_request_for_another_protocol_keeps_its_body(server: Served, size: bytes, step: int) -> None:
    """The body looks like a request, and must never be one."""
    body = b"GET /body HTTP/1.1\r\nHost: a\r\n\r\n"[:29]
    upgrade = head(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMA", size)
    sent = upgrade + (body if size.startswith(b"C") else b"1d\r\n" + body + b"\r\n0\r\n\r\n") + NEXT
    with server.connect() as connection:
        for start in range(0, len(sent), step):
            connection.sendall(sent[start : start + step])
        received = everything(connection)
    first, second = answers(received)
    assert (first[0], first[1]["path"], first[1]["body"]) == (200, "/", body.decode())
    assert second[1]["path"] == "/next"


def test_a_request_for_another_protocol_without_a_body_is_answered_and_so_is_the_next(server: Served) -> None:
    upgrade = head(b"Connection: Upgrade", b"Upgrade: websocket", start=b"GET /first HTTP/1.1")
    found = answers(server.exchange(upgrade + upgrade + NEXT))
    assert [body["path"] for _, body in found] == ["/first", "/first", "/next"]


def test_requests_sent_ahead_are_answered_in_their_order(server: Served) -> None:
    ahead = b"".join(head(b"Content-Length: 1", start=b"POST /%d HTTP/1.1" % each) + b"x" for each in range(20))
    assert [body["path"] for _, body in answers(server.exchange(ahead + NEXT))] == [
        *(f"/{each}" for each in range(20)),
        "/next",
    ]


def test_what_is_not_clear_behind_a_request_is_not_taken_for_its_answer(server: Served) -> None:
    found = answers(server.exchange(head(b"Content-Length: 1") + b"x" + b"GET / HTTP/1.1\nHost: a\n\n"))
    assert [status for status, _ in found] == [200]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_is_answered_or_refused_and_the_next_connection_is_served(server: Served, seed: int) -> None:
    """Requests with bytes changed, lost and repeated, in pieces of any size."""
    chance = random.Random(seed)
    sent = bytearray(b"".join(chance.choice(list(REFUSED.values()))[1] + NEXT for _ in range(3)))
    for _ in range(chance.randrange(8)):
        at = chance.randrange(len(sent))
        sent[at : at + chance.randrange(3)] = chance.choice(
            [b"", b"\r", b"\n", b"\0", b" ", b"\xff", sent[at : at + 9]]
        )
    with server.connect() as connection:
        while sent:
            size = chance.randrange(1, 400)
            connection.sendall(sent[:size])
            del sent[:size]
        connection.shutdown(socket.SHUT_WR)
        received = everything(connection)
    assert all(status in (200, 400, 405, 501, 505) for status, _ in answers(received))
    assert answers(server.exchange(NEXT))[0][0] == 200


def test_who_waits_for_leave_to_send_the_body_gets_it(server: Served) -> None:
    with server.connect() as connection:
        connection.sendall(head(b"Content-Length: 3", b"Expect: 100-continue", b"Connection: close"))
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"abc")
        received = everything(connection)
    assert answers(received)[0][1]["body"] == "abc"


def test_an_answer_before_the_body_leaves_the_connection_usable(server: Served) -> None:
    sent = head(b"Content-Length: 200000", start=b"POST /early HTTP/1.1") + b"x" * 200_000
    assert [body["path"] for _, body in answers(server.exchange(sent + NEXT))] == ["/early", "/next"]
