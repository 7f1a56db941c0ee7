"""Connections of a stopping server."""

import math
from contextlib import closing

import pytest

from tests.support.servers.http_connections import parse_responses, read_until_closed, run_http_server

pytestmark = pytest.mark.slow

INCOMPLETE = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345"
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
WAIT = b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n"


def test_stop_refuses_incomplete_requests_but_answers_complete_ones() -> None:
    with run_http_server(timeout=3) as server, closing(server.connect()) as connection:
        connection.sendall(INCOMPLETE)
        with closing(server.connect()) as waiting:
            waiting.sendall(WAIT)
            assert server.request_started.wait(60)
            server.stop()
            ((status, body),) = parse_responses(read_until_closed(connection))
            assert status == 503
            assert "has not arrived in full" in body["error"]
            # A complete request is answered.
            server.release.set()
            ((status, _),) = parse_responses(read_until_closed(waiting))
            assert status == 200


def test_connection_accepted_during_the_stop_gets_one_response() -> None:
    with run_http_server() as server:
        server.connections.reject_incomplete_at = math.inf
        # These connections are accepted after the stop has begun.
        assert server.send_and_read(b"") == b""
        received = server.send_and_read(GET + GET)
        assert [status for status, _ in parse_responses(received)] == [200]
        server.connections.reject_incomplete_at = None
