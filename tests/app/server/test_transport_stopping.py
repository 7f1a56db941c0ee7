"""Connections of a stopping server."""

import math
from contextlib import closing

import pytest

from tests.support.http_connections import answers, everything, served

pytestmark = pytest.mark.slow

INCOMPLETE = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345"
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
WAIT = b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n"


def test_stop_refuses_incomplete_requests_but_answers_complete_ones() -> None:
    with served(timeout=3) as server, closing(server.connect()) as connection:
        connection.sendall(INCOMPLETE)
        with closing(server.connect()) as waiting:
            waiting.sendall(WAIT)
            assert server.began.wait(60)
            server.stop()
            ((status, body),) = answers(everything(connection))
            assert status == 503
            assert "has not arrived in full" in body["error"]
            # A complete request is answered.
            server.gate.set()
            ((status, _),) = answers(everything(waiting))
            assert status == 200


def test_connection_accepted_during_the_stop_gets_one_response() -> None:
    with served() as server:
        server.transport.connections.until = math.inf
        # These connections are accepted after the stop has begun.
        assert server.exchange(b"") == b""
        received = server.exchange(GET + GET)
        assert [status for status, _ in answers(received)] == [200]
        server.transport.connections.until = None
