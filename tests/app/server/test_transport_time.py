"""Senders and readers who take too long, over real connections. A second is what a look takes at most."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from app.settings.transport import TransportSettings
from tests.support.http_connections import Served, answers, everything, served

pytestmark = pytest.mark.slow

SETTINGS = TransportSettings(
    header_timeout=0.5, body_timeout=0.5, write_timeout=0.5, keep_alive_timeout=0.5, lowest_rate=100_000
)
GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
BODY = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(SETTINGS) as running:
        yield running


def dripping(connection: socket.socket, first: bytes, drop: bytes) -> bytes:
    """What comes back to who sends a little every now and then, for as long as it is let."""
    connection.sendall(first)
    connection.settimeout(0.02)
    received = b""
    while True:
        try:
            piece = connection.recv(65536)
        except TimeoutError:
            connection.send(drop)
            continue
        except ConnectionError:
            return received
        if not piece:
            return received
        received += piece


@pytest.mark.parametrize(
    ("first", "drop"),
    [(b"", b"\r\n"), (GET, b"x"), (GET, b"X: y\r\n"), (BODY, b"x")],
    ids=["empty lines", "a header", "headers", "a body"],
)
def test_who_drips_is_ended(server: Served, first: bytes, drop: bytes) -> None:
    with closing(server.connect()) as connection:
        received = dripping(connection, first, drop)
    assert [status for status, _ in answers(received)] == ([408] if first else [])


def test_who_sends_nothing_more_is_ended(server: Served) -> None:
    """All at once, because each of them waits."""
    sent = {
        b"": [],
        b"GET": [408],
        GET: [408],
        BODY: [408],
        BODY + b"x" * 600_000: [408],
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc": [408],
        GET + b"\r\n": [200],
        GET + b"\r\nGET": [200, 408],
        b"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc": [200],
    }
    with ExitStack() as kept:
        connections = [kept.enter_context(closing(server.connect())) for _ in sent]
        for connection, each in zip(connections, sent, strict=True):
            connection.sendall(each)
        found = [[status for status, _ in answers(everything(each))] for each in connections]
    assert found == list(sent.values())


def test_who_takes_no_more_of_an_answer_is_ended(server: Served) -> None:
    before = server.counted("charioteer_connections_ended_total", reason="answer")
    with closing(server.connect()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(b"GET /much HTTP/1.1\r\nHost: a\r\n\r\n")
        while server.counted("charioteer_connections_ended_total", reason="answer") == before:
            pass
        assert len(everything(connection)) < 64_000_000


def test_who_takes_an_answer_as_fast_as_it_may_gets_all_of_it(server: Served) -> None:
    with closing(server.connect()) as connection:
        connection.sendall(b"GET /much HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        received = 0
        pause = threading.Event()
        while piece := connection.recv(4_000_000):
            received += len(piece)
            pause.wait(0.02)
    assert received > 64_000_000


def test_who_was_answered_early_may_send_the_rest_as_any_body(server: Served) -> None:
    pause = threading.Event()
    with closing(server.connect()) as connection:
        connection.sendall(b"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 600000\r\n\r\n")
        for _ in range(30):
            connection.sendall(b"x" * 20_000)
            pause.wait(0.1)
        connection.sendall(GET + b"Connection: close\r\n\r\n")
        assert [status for status, _ in answers(everything(connection))] == [200, 200]


def test_who_connects_ahead_is_kept_as_who_has_asked_already() -> None:
    settings = TransportSettings(header_timeout=0.5)
    with served(settings) as server, closing(server.connect()) as connection:
        assert not server.left.wait(3)
        connection.sendall(GET + b"Connection: close\r\n\r\n")
        assert answers(everything(connection))[0][0] == 200


def test_a_server_that_is_busy_keeps_who_waits() -> None:
    with served(SETTINGS) as server, closing(server.connect()) as connection:
        connection.sendall(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
        assert not server.left.wait(2)
        server.gate.set()
        assert answers(everything(connection))[0][0] == 200


def test_who_sends_nonsense_behind_a_request_still_gets_its_answer() -> None:
    with served(SETTINGS) as server, closing(server.connect()) as connection:
        connection.sendall(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\nnonsense")
        assert not server.left.wait(4)
        server.gate.set()
        assert [status for status, _ in answers(everything(connection))] == [200]


def test_a_thousand_slow_senders_keep_nobody_from_being_answered() -> None:
    with served(TransportSettings()) as server, ExitStack() as kept:
        for _ in range(1000):
            kept.enter_context(closing(server.connect())).sendall(BODY[:-2])
        for _ in range(50):
            assert answers(server.exchange(GET + b"Connection: close\r\n\r\n"))[0][0] == 200
