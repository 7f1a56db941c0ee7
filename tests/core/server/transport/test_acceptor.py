"""Accepting connections when file descriptors run out."""

import asyncio
import errno
import logging
import socket

import pytest
from prometheus_client import CollectorRegistry

from app.core.server.transport.acceptor import Acceptor
from app.core.server.transport.connection_table import ConnectionTable
from app.core.settings.network import TransportSettings


class ExhaustedSocket(socket.socket):
    """Fail the first accept because no file descriptor is left."""

    accept_calls = 0

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        self.accept_calls += 1
        if self.accept_calls == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


class GreetingProtocol(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(b"hello")


def test_acceptor_without_file_descriptors_waits_a_second_before_it_retries(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> tuple[bytes, int]:
        with ExhaustedSocket() as listener:
            listener.bind(("127.0.0.1", 0))
            connections = ConnectionTable(TransportSettings(), CollectorRegistry(), 4096)
            acceptor = Acceptor(listener, connections, lambda _, __: GreetingProtocol())
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            greeting = await reader.readexactly(5)
            writer.close()
            acceptor.close()
            return greeting, listener.accept_calls

    with caplog.at_level(logging.ERROR):
        greeting, accept_calls = asyncio.run(run())
    # One failure, one success a second later, one to find no other connection, and one at the end.
    assert (greeting, accept_calls) == (b"hello", 4)
    assert [record.message for record in caplog.records] == ["no connection can be accepted for a second"]
