"""Connections of a server that stops."""

import math
from contextlib import closing

import pytest

from tests.support.http_connections import answers, everything, served

pytestmark = pytest.mark.slow

PART = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345"
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
WAIT = b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n"


def test_what_has_not_arrived_in_full_is_given_up() -> None:
    with served(timeout=3) as server, closing(server.connect()) as connection:
        connection.sendall(PART)
        with closing(server.connect()) as waiting:
            waiting.sendall(WAIT)
            assert server.began.wait(60)
            server.stop()
            ((status, answer),) = answers(everything(connection))
            assert status == 503
            assert "has not arrived in full" in answer["error"]
            # Who sent all of it is answered.
            server.gate.set()
            ((status, _),) = answers(everything(waiting))
            assert status == 200


def test_who_is_connected_too_late_is_answered_once_and_let_go() -> None:
    with served() as server:
        server.transport.connections.until = math.inf
        # As if they had been accepted when the others had been told already.
        assert server.exchange(b"") == b""
        received = server.exchange(GET + GET)
        assert [status for status, _ in answers(received)] == [200]
        server.transport.connections.until = None
