"""Timeouts of slow clients over real connections."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from app.core.settings.network import TransportSettings
from tests.support.polling import wait_until
from tests.support.servers.http_connections import HttpTestServer, parse_responses, read_until_closed, run_http_server

pytestmark = pytest.mark.slow

SETTINGS = TransportSettings(header_timeout=0.5, body_timeout=0.5, write_timeout=0.5, keep_alive_timeout=0.5)
GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
BODY = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[HttpTestServer]:
    with run_http_server(SETTINGS) as running:
        yield running


def drip(connection: socket.socket, first: bytes, drop: bytes) -> bytes:
    """Send `drop` again and again until the server closes, and return what it sent."""
    connection.sendall(first)
    connection.settimeout(0.02)
    received = b""
    while True:
        try:
            try:
                chunk = connection.recv(65536)
            except TimeoutError:
                connection.send(drop)
                continue
        except ConnectionError:
            return received
        if not chunk:
            return received
        received += chunk


@pytest.mark.parametrize(
    ("first", "drop"),
    [(b"\r\n", b"\r\n"), (GET, b"x"), (GET, b"X: y\r\n"), (BODY, b"x")],
    ids=["empty lines", "a header", "headers", "a body"],
)
def test_client_that_drips_bytes_is_disconnected(server: HttpTestServer, first: bytes, drop: bytes) -> None:
    with closing(server.connect()) as connection:
        received = drip(connection, first, drop)
    assert [status for status, _ in parse_responses(received)] == ([408] if first.strip() else [])


def test_client_that_stops_sending_is_disconnected(server: HttpTestServer) -> None:
    """Open all connections at once, because each one waits for a timeout."""
    statuses_by_request = {
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
    with ExitStack() as stack:
        connections: list[socket.socket] = []
        for request in statuses_by_request:
            # Send at once: the timeouts begin with the connection.
            connections.append(stack.enter_context(closing(server.connect())))
            connections[-1].sendall(request)
        statuses = [
            [status for status, _ in parse_responses(read_until_closed(connection))] for connection in connections
        ]
    assert statuses == list(statuses_by_request.values())


def test_client_that_stops_reading_is_disconnected(server: HttpTestServer) -> None:
    with closing(server.connect()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(b"GET /much HTTP/1.1\r\nHost: a\r\n\r\n")
        wait_until(lambda: server.metric_value("charioteer_connections") == 1)
        wait_until(lambda: server.metric_value("charioteer_connections") == 0)
        assert len(read_until_closed(connection)) < 64_000_000


def test_slow_reader_above_the_minimum_rate_gets_the_complete_response(server: HttpTestServer) -> None:
    with closing(server.connect()) as connection:
        connection.sendall(b"GET /much HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        received = 0
        pause = threading.Event()
        while chunk := connection.recv(4_000_000):
            received += len(chunk)
            pause.wait(0.02)
    assert received > 64_000_000


def test_new_connection_without_request_has_the_keep_alive_timeout() -> None:
    settings = TransportSettings(header_timeout=0.5)
    with run_http_server(settings) as server, closing(server.connect()) as connection:
        assert not server.client_left.wait(1)
        connection.sendall(GET + b"Connection: close\r\n\r\n")
        assert parse_responses(read_until_closed(connection))[0][0] == 200


@pytest.mark.parametrize("behind", [b"", b"nonsense"])
def test_client_that_waits_for_a_busy_server_is_not_disconnected(behind: bytes) -> None:
    with run_http_server(SETTINGS) as server, closing(server.connect()) as connection:
        connection.sendall(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n" + behind)
        assert not server.client_left.wait(1)
        server.release.set()
        assert [status for status, _ in parse_responses(read_until_closed(connection))] == [200]
