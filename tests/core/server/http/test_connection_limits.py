"""Limits of one connection and of all connections together."""

import json
import re
import socket
import struct
from contextlib import ExitStack, closing
from math import inf

import pytest

from app.core.server.listen import connection_limit, set_timeouts
from app.core.settings.network import TransportSettings
from app.core.settings.server import SettingsError
from tests.support.polling import wait_until
from tests.support.servers.http_connections import HttpTestServer, parse_responses, read_until_closed, run_http_server

GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
LAST = GET + b"Connection: close\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def padded_request(size: int) -> bytes:
    """Return a request of `size` bytes."""
    start, end = GET + b"Connection: close\r\nX: ", b"\r\n\r\n"
    return start + b"x" * (size - len(start + end)) + end


def test_headers_over_max_header_bytes_are_431() -> None:
    with run_http_server(TransportSettings(max_header_bytes=1000)) as server:
        assert [status for status, _ in parse_responses(server.send_and_read(padded_request(1000)))] == [200]
        [(status, body)] = parse_responses(server.send_and_read(padded_request(1001)))
        assert (status, body) == (431, {"error": "The request line and the headers have more than 1000 bytes"})
        assert server.metric_value("charioteer_connections_ended_total", reason="headers") == 0


@pytest.mark.parametrize(
    "request_bytes",
    [b"GET /" + b"x" * 5000, GET + b"X: " + b"x" * 5000, GET + b"x" * 5000, b"G" * 5000],
    ids=["line", "value", "name", "method"],
)
def test_unterminated_headers_are_rejected_at_the_limit(request_bytes: bytes) -> None:
    with run_http_server(TransportSettings(max_header_bytes=1000)) as server, closing(server.connect()) as connection:
        for start in range(0, len(request_bytes), 500):
            connection.sendall(request_bytes[start : start + 500])
        responses = parse_responses(read_until_closed(connection))
    assert responses[0][0] in (400, 431)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"1;" + b"x" * 600_000 + b"\r\na\r\n0\r\n\r\n",
        b"1;" + b"x" * 600_000,
        b"1;xxxxxxxxxxxxxxxxxxx\r\na\r\n" * 25_000,
        b"0\r\n" + b"X:y\r\n" * 100_000,
        b"0\r\nX: " + b"x" * 600_000,
    ],
    ids=["extension", "extension without end", "many extensions", "trailers", "trailer without end"],
)
def test_chunk_extensions_and_trailers_over_the_limit_are_rejected(request_bytes: bytes) -> None:
    with run_http_server(TransportSettings(max_header_bytes=1000)) as server, closing(server.connect()) as connection:
        connection.sendall(CHUNKED + request_bytes)
        assert parse_responses(read_until_closed(connection))[0][0] in (400, 431)


def test_body_in_chunks_of_one_byte_is_accepted() -> None:
    with run_http_server(TransportSettings(max_header_bytes=1000)) as server:
        [(status, body)] = parse_responses(server.send_and_read(CHUNKED + b"1\r\na\r\n" * 20_000 + b"0\r\n\r\n"))
    assert (status, len(body["body"])) == (200, 20_000)


def test_large_bodies_over_the_total_limit_are_503_but_small_ones_are_served() -> None:
    size = 300_000
    with run_http_server(TransportSettings(max_received_bytes=400_000)) as server, closing(server.connect()) as first:
        first.sendall(POST + b"Content-Length: %d\r\n\r\n" % size + b"x" * (size - 1))
        wait_for(server, "charioteer_received_bytes", size - 1)
        large = POST + b"Content-Length: %d\r\n\r\n" % size + b"x" * size
        received = server.send_and_read(large)
        assert parse_responses(received)[0][0] == 503
        assert b"retry-after: 1\r\n" in received
        small = POST + b"Content-Length: 60000\r\n\r\n" + b"x" * 60_000
        assert parse_responses(server.send_and_read(small))[0][0] == 200
        first.sendall(b"x")
        assert parse_responses(read_until_closed(first))[0][0] == 200
        assert parse_responses(server.send_and_read(large))[0][0] == 200
        wait_for(server, "charioteer_received_bytes", 0)


def test_connections_over_the_limit_are_503_and_closed() -> None:
    with run_http_server(TransportSettings(max_connections=20)) as server:
        assert server.metric_value("charioteer_connections_refused_total") == 0, "starts at 0"
        with ExitStack() as stack:
            for _ in range(20):
                stack.enter_context(closing(server.connect()))
            wait_for(server, "charioteer_connections", 20)
            with closing(server.connect()) as connection:
                assert parse_responses(read_until_closed(connection))[0][0] == 503
            assert server.metric_value("charioteer_connections_refused_total") == 1
        wait_for(server, "charioteer_connections", 0)
        assert parse_responses(server.send_and_read(LAST))[0][0] == 200


@pytest.mark.parametrize(("files", "max_connections"), [(20_000, 10_000), (4096, 3584), (256, 128)])
def test_connection_limit_leaves_room_for_other_files(files: int, max_connections: int) -> None:
    assert connection_limit(None, files) == max_connections


def test_max_connections_over_the_file_limit_is_a_settings_error() -> None:
    expected = "--max-connections 4,000 needs a higher limit of open files (ulimit -n): 4,096 leave room for 3,584"
    with pytest.raises(SettingsError, match=re.escape(expected)):
        connection_limit(4000, 4096)


@pytest.mark.parametrize("ending", ["close", "reset", "half-close"])
def test_disconnect_is_noticed_while_the_request_runs(ending: str) -> None:
    with run_http_server() as server, closing(server.connect()) as connection:
        connection.sendall(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
        assert server.request_started.wait(60)
        if ending == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if ending == "half-close":
            connection.shutdown(socket.SHUT_WR)
        else:
            connection.close()
        assert server.client_left.wait(60)
        wait_for(server, "charioteer_connections", 0)


def test_half_close_inside_a_body_ends_the_request() -> None:
    with run_http_server() as server, closing(server.connect()) as connection:
        connection.sendall(POST + b"Content-Length: 10\r\n\r\nabc")
        connection.shutdown(socket.SHUT_WR)
        assert read_until_closed(connection) == b""
        assert server.client_left.wait(60)


@pytest.mark.parametrize(("write_timeout", "milliseconds"), [(30.0, 30_000), (inf, 86_400_000)])
def test_accepted_socket_has_keepalive_and_the_write_timeout(write_timeout: float, milliseconds: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        set_timeouts(listener, write_timeout)
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == milliseconds


def test_error_of_the_connection_is_json() -> None:
    with run_http_server() as server:
        received = server.send_and_read(b"nonsense\r\n\r\n")
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    assert json.loads(body)["error"] == "Invalid HTTP request received."


def wait_for(server: HttpTestServer, name: str, value: float) -> None:
    wait_until(lambda: server.metric_value(name) == value)
