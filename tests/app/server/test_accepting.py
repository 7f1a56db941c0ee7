"""Taking connections while there is a file left."""

import asyncio
import errno
import logging
import socket

import pytest
from prometheus_client import CollectorRegistry

from app.server.accepting import Acceptor
from app.server.connections import Connections
from app.settings.transport import TransportSettings


class Exhausted(socket.socket):
    """Cannot accept the first time."""

    asked = 0

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        self.asked += 1
        if self.asked == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


class Greeting(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(b"hello")


def test_a_process_without_files_waits_for_one_instead_of_asking_again_and_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> tuple[bytes, int]:
        with Exhausted() as listening:
            listening.bind(("127.0.0.1", 0))
            connections = Connections(TransportSettings(), CollectorRegistry(), 4096)
            acceptor = Acceptor(listening, connections, lambda _, __: Greeting(), None)
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            greeted = await reader.readexactly(5)
            writer.close()
            acceptor.close()
            return greeted, listening.asked

    with caplog.at_level(logging.ERROR):
        greeted, asked = asyncio.run(run())
    # Once in vain, once a second later, once to find that nobody else is there, and once more at the end.
    assert (greeted, asked) == (b"hello", 4)
    assert [each.message for each in caplog.records] == ["no connection can be accepted for a second"]
