"""Limits of one connection and of all connections together."""

import json
import socket
import struct
from contextlib import ExitStack, closing
from math import inf

import pytest
from prometheus_client import CollectorRegistry

from app.core.server.transport import tcp_info
from app.core.server.transport.connection_table import ConnectionTable
from app.core.settings.network import TransportSettings
from app.core.settings.server import SettingsError
from tests.support.polling import wait_until
from tests.support.servers.http_connections import HttpTestServer, parse_responses, read_until_closed, run_http_server

GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
LAST = GET + b"Connection: close\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def padded_request(size: int) -> bytes:
    """Return a request of `size` counted bytes: the target, and names and values plus four for each header."""
    counted_bytes = len("/") + len("HostaConnectionclose") + 8 + len("X") + 4
    return GET + b"Connection: close\r\nX: " + b"x" * (size - counted_bytes) + b"\r\n\r\n"


def test_headers_over_max_header_bytes_are_431() -> None:
    with run_http_server(TransportSettings(max_header_bytes=1000)) as server:
        assert [status for status, _ in parse_responses(server.send_and_read(padded_request(1000)))] == [200]
        [(status, body)] = parse_responses(server.send_and_read(padded_request(1001)))
        assert (status, body) == (431, {"error": "The request line and the headers have more than 1000 bytes"})
        assert server.metric_value("charioteer_connections_ended_total", reason="headers_large") == 1


@pytest.mark.parametrize(
    "request_bytes",
    [b"GET /" + b"x" * 5000, GET + b"X: " + b"x" * 5000, GET + b"x" * 5000, b"G" * 5000],
    ids=["line", "value", "name", "method"],
)
def test_unterminated_headers_are_refused_at_the_limit(request_bytes: bytes) -> None:
    with run_http_server(TransportSettings(max_header_bytes=1000)) as server, closing(server.connect()) as connection:
        for start in range(0, len(request_bytes), 500):
            connection.sendall(request_bytes[start : start + 500])
        responses = parse_responses(read_until_closed(connection))
    assert responses[0][0] in (400, 431)


def test_headers_over_max_header_fields_are_431() -> None:
    with run_http_server(TransportSettings(max_header_fields=12)) as server:
        assert (
            parse_responses(server.send_and_read(GET + b"Connection: close\r\n" + b"X:y\r\n" * 10 + b"\r\n"))[0][0]
            == 200
        )
        assert (
            parse_responses(server.send_and_read(GET + b"Connection: close\r\n" + b"X:y\r\n" * 11 + b"\r\n"))[0][0]
            == 431
        )


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"1;" + b"x" * 600_000 + b"\r\na\r\n0\r\n\r\n",
        b"1;" + b"x" * 600_000,
        b"1;xxxxxxxxxxxxxxxxxxx\r\na\r\n" * 25_000,
        b"0\r\nX: " + b"x" * 5000 + b"\r\n\r\n",
        b"0\r\n" + b"X:y\r\n" * 300 + b"\r\n",
        b"0\r\nX: " + b"x" * 600_000,
    ],
    ids=["extension", "extension without end", "many extensions", "trailer", "trailers", "trailer without end"],
)
def test_chunk_extensions_and_trailers_over_the_limit_are_refused(request_bytes: bytes) -> None:
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
        assert server.metric_value("charioteer_connections_refused_total", reason="all") == 0, "starts at 0"
        with ExitStack() as stack:
            for _ in range(20):
                stack.enter_context(closing(server.connect()))
            wait_for(server, "charioteer_connections", 20)
            with closing(server.connect()) as connection:
                assert parse_responses(read_until_closed(connection))[0][0] == 503
            assert server.metric_value("charioteer_connections_refused_total", reason="all") == 1
        wait_for(server, "charioteer_connections", 0)
        assert parse_responses(server.send_and_read(LAST))[0][0] == 200


def test_connections_of_one_address_over_its_limit_are_503() -> None:
    with run_http_server(TransportSettings(max_address_connections=2)) as server:
        with closing(server.connect()), closing(server.connect()):
            wait_for(server, "charioteer_connections", 2)
            with closing(server.connect()) as connection:
                assert parse_responses(read_until_closed(connection))[0][0] == 503
            assert server.metric_value("charioteer_connections_refused_total", reason="address") == 1
            other = socket.create_connection(("127.0.0.1", server.port), source_address=("127.0.0.2", 0))
            with closing(other):
                other.sendall(LAST)
                assert parse_responses(read_until_closed(other))[0][0] == 200
        wait_for(server, "charioteer_connections", 0)
        assert parse_responses(server.send_and_read(LAST))[0][0] == 200


def test_ipv6_addresses_of_one_network_share_a_limit() -> None:
    connections = ConnectionTable(TransportSettings(max_address_connections=2), CollectorRegistry(), 4096)
    assert [connections.try_acquire(f"2001:db8::{host}") for host in (1, 2, 3)] == [True, True, False]
    assert connections.try_acquire("2001:db8:0:1::1")
    assert [connections.try_acquire(address) for address in ("::ffff:1.2.3.4", "::ffff:1.2.3.5")] == [True, True]
    assert connections.try_acquire("fe80::1%eth0")
    connections.release("2001:db8::9")
    assert connections.try_acquire("2001:db8::4")


@pytest.mark.parametrize(("files", "max_connections"), [(20_000, 10_000), (4096, 3584), (256, 128)])
def test_connection_limit_leaves_room_for_other_files(files: int, max_connections: int) -> None:
    assert ConnectionTable(TransportSettings(), CollectorRegistry(), files).max_connections == max_connections


def test_max_connections_over_the_file_limit_is_a_settings_error() -> None:
    with pytest.raises(SettingsError) as caught:
        ConnectionTable(TransportSettings(max_connections=4000), CollectorRegistry(), 4096)
    expected = "--max-connections 4,000 needs a higher limit of open files (ulimit -n): 4,096 leave room for 3,584"
    assert str(caught.value) == expected


def test_half_closed_client_gets_its_response() -> None:
    with run_http_server() as server, closing(server.connect()) as connection:
        connection.sendall(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        assert server.request_started.wait(60)
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert not server.client_left.wait(0.2)
        server.release.set()
        assert parse_responses(read_until_closed(connection))[0][1]["path"] == "/wait"


@pytest.mark.parametrize("reset", [False, True])
def test_disconnect_is_noticed_while_the_request_runs(reset: bool) -> None:
    with run_http_server() as server:
        connection = server.connect()
        connection.sendall(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
        assert server.request_started.wait(60)
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        assert server.client_left.wait(60)
        wait_for(server, "charioteer_connections", 0)


def test_half_close_inside_a_body_ends_the_request() -> None:
    with run_http_server() as server, closing(server.connect()) as connection:
        connection.sendall(POST + b"Content-Length: 10\r\n\r\nabc")
        connection.shutdown(socket.SHUT_WR)
        assert read_until_closed(connection) == b""
        assert server.client_left.wait(60)


def test_accepted_socket_has_keepalive_and_user_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        tcp_info.configure_timeouts(listener, 30.0)
        with socket.create_connection(listener.getsockname()) as client, listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 120_000
            before = tcp_info.acknowledged_bytes(accepted)
            accepted.sendall(b"x" * 1000)
            client.recv(1000, socket.MSG_WAITALL)
            assert before is not None
            wait_until(lambda: (tcp_info.acknowledged_bytes(accepted) or 0) > before)
            assert (tcp_info.acknowledged_bytes(accepted) or 0) - before == 1000
            assert not tcp_info.is_reset(accepted)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            wait_until(lambda: tcp_info.is_reset(accepted))


def test_closed_socket_has_no_unread_bytes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert tcp_info.unread_bytes(listener) == 0
    assert tcp_info.unread_bytes(listener) == 0


@pytest.mark.parametrize(("write_timeout", "milliseconds"), [(30.0, 120_000), (600.0, 1_200_000), (inf, 86_400_000)])
def test_tcp_user_timeout_follows_the_write_timeout(write_timeout: float, milliseconds: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        tcp_info.configure_timeouts(listener, write_timeout)
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == milliseconds


def test_error_of_the_connection_is_json() -> None:
    with run_http_server() as server:
        received = server.send_and_read(b"nonsense\r\n\r\n")
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    assert json.loads(body)["error"].startswith("Not HTTP: ")


def wait_for(server: HttpTestServer, name: str, value: float) -> None:
    wait_until(lambda: server.metric_value(name) == value)
