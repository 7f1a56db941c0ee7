"""Pipelined requests on one HTTP connection."""

import asyncio
import json
import socket
import struct
from collections.abc import Generator
from contextlib import closing, suppress

import pytest
import uvloop

from tests.support.servers.http_connections import HttpTestServer, parse_responses, read_until_closed, run_http_server
from tests.support.servers.server_process import ServerProcess, run_server

LOOPS = [uvloop.new_event_loop, asyncio.SelectorEventLoop]
NO_LINGER = struct.pack("ii", 1, 0)


def get(path: str, *fields: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: a", *fields, "", ""]).encode()


@pytest.fixture(scope="module", params=LOOPS)
def server(request: pytest.FixtureRequest) -> Generator[HttpTestServer]:
    with run_http_server(loop=request.param) as running:
        yield running


@pytest.mark.parametrize("count", [33, 34, 40, 1000])
def test_pipelined_requests_before_a_half_close_are_all_answered(server: HttpTestServer, count: int) -> None:
    responses = parse_responses(
        server.send_and_read(b"".join(get(f"/{index}") for index in range(count)), half_close=True)
    )
    assert [(status, body["path"]) for status, body in responses] == [(200, f"/{index}") for index in range(count)]


def test_pipelined_bodies_before_a_half_close_are_all_answered(server: HttpTestServer) -> None:
    body = b" HTTP/1." * 500
    template = b"POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s"
    responses = parse_responses(
        server.send_and_read(b"".join(template % (index, len(body), body) for index in range(40)), half_close=True)
    )
    assert [(status, response["path"]) for status, response in responses] == [(200, f"/{index}") for index in range(40)]
    assert {response["body"] for _, response in responses} == {body.decode()}


@pytest.mark.parametrize("partial", [b"GET /x HT", b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx"])
def test_requests_before_an_incomplete_one_are_answered_after_a_half_close(
    server: HttpTestServer, partial: bytes
) -> None:
    responses = parse_responses(server.send_and_read(get("/first") + get("/second") + partial, half_close=True))
    assert [body["path"] for _, body in responses] == ["/first", "/second"]


@pytest.mark.parametrize(
    "invalid", [b"GET / nonsense\r\n", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nz"]
)
def test_requests_before_an_invalid_one_are_answered(server: HttpTestServer, invalid: bytes) -> None:
    responses = parse_responses(server.send_and_read(get("/first") + get("/second") + invalid))
    assert [body["path"] for _, body in responses] == ["/first", "/second"]


def test_pipelined_requests_over_the_limit_are_not_parsed_until_earlier_ones_end(server: HttpTestServer) -> None:
    """Send more than the limit: parsed requests cost memory, so later ones stay bytes or stay in the kernel."""
    server.release.clear()
    request, bytes_sent = get("/", f"X: {'x' * 8000}"), 0
    with closing(server.connect()) as connection:
        connection.sendall(get("/wait"))
        connection.settimeout(0.5)
        with suppress(TimeoutError):
            while bytes_sent < 100_000_000:
                bytes_sent += connection.send(request * 100)
        assert bytes_sent < 100_000_000
        connection.settimeout(20)
        server.release.set()
        connection.shutdown(socket.SHUT_WR)
        received = read_until_closed(connection)
    assert received.count(b"HTTP/1.1 200 OK") == 1 + bytes_sent // len(request)


def test_reset_after_pipelined_requests_cancels_the_request_in_flight(
    server: HttpTestServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.release.clear()
    server.request_started.clear()
    server.client_left.clear()
    with closing(server.connect()) as connection:
        connection.sendall(get("/wait") + get("/after") * 4)
        assert server.request_started.wait(60)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    assert server.client_left.wait(60)
    assert not caplog.records


def test_half_close_writes_no_interim_response_into_a_started_response(server: HttpTestServer) -> None:
    server.release.clear()
    with closing(server.connect()) as connection:
        connection.sendall(get("/started") + get("/after"))
        received = connection.recv(65536)
        connection.shutdown(socket.SHUT_WR)
        # When another connection is answered, the server has seen the half-close.
        assert parse_responses(server.send_and_read(get("/", "Connection: close")))
        server.release.set()
        received += read_until_closed(connection)
    assert b" 100 Continue" not in received
    assert [body["path"] for _, body in parse_responses(received)] == ["/started", "/after"]


@pytest.fixture(scope="module")
def process() -> Generator[ServerProcess]:
    with run_server("--model", "fixtures/models/half_plus_two", "--no-grpc", "--no-tensorflow-serving") as running:
        yield running


def test_reset_after_pipelined_inferences_logs_no_traceback(process: ServerProcess) -> None:
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [3], "data": [1, 2, 5]}]}).encode()
    head = f"POST /v2/models/half_plus_two/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    host, _, port = process.address.removeprefix("http://").partition(":")
    for _ in range(100):
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall((head.encode() + body) * 5)
            # Reset while the first request runs; the timeout bounds the wait for a response that may not come.
            connection.settimeout(0.002)
            with suppress(TimeoutError):
                connection.recv(1, socket.MSG_PEEK)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert read_until_closed(connection).startswith(b"HTTP/1.1 200")
    process.stop()
    assert "Traceback" not in "".join(process.log)
