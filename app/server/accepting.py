"""Taking connections from a listening socket: counted first, and refused while there is a file left to do so."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from app.server import tcp
from app.server.connections import Connections
from app.server.refusal import refusal
from app.server.tls import Certificates

__all__ = ("Acceptor",)

_logger = logging.getLogger(__name__)
_AT_ONCE = 128
_BACKLOG = 2048
_PAUSE_SECONDS = 1.0
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_READ_BYTES = 64 * 1024
_LONGEST_SECONDS = 24 * 3600.0
"""What the event loop is given where time is not its business: who is slow to take what is written, or to agree that
TLS is over, is ended by being looked at."""


class Acceptor:
    """Hands the connections of one listening socket to protocols. Closes like an asyncio server.

    Args:
        listening: where from; not blocking afterwards.
        connections: counts them.
        protocol: makes what answers a connection, from its socket and the address of the other side.
        certificates: what TLS is spoken with; None for no TLS.
    """

    def __init__(
        self,
        listening: socket.socket,
        connections: Connections,
        protocol: Callable[[socket.socket, str], asyncio.Protocol],
        certificates: Certificates | None,
    ) -> None:
        self._listening = listening
        self._connections = connections
        self._protocol = protocol
        self._certificates = certificates
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()
        self._resuming: asyncio.TimerHandle | None = None
        self._descriptor = listening.fileno()
        listening.setblocking(False)
        listening.listen(_BACKLOG)
        tcp.watch(listening, connections.settings.write_timeout)
        self._loop.add_reader(self._descriptor, self._accept)

    def close(self) -> None:
        """Take what waits already, which the kernel would reset otherwise, and no more."""
        for _ in range(_BACKLOG // _AT_ONCE):
            if not self._accept():
                break
        self._loop.remove_reader(self._descriptor)
        if self._resuming is not None:
            self._resuming.cancel()

    async def wait_closed(self) -> None:
        """Nothing is left to wait for: connections are waited for by whoever answers them."""

    def _accept(self) -> bool:
        """Take some of those that wait; whether there may be more."""
        for _ in range(_AT_ONCE):
            try:
                accepted, where = self._listening.accept()
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._pause(error)
                return False
            address = where[0]
            if not self._connections.admit(address):
                _turn_away(accepted, plain=self._certificates is None)
                continue
            task = self._loop.create_task(self._open(accepted, address))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        return True

    def _pause(self, error: OSError) -> None:
        """Connections wait in the kernel meanwhile; asking again at once would only take the processor."""
        _logger.error("no connection can be accepted for a second", extra={"error": error.strerror})
        self._loop.remove_reader(self._descriptor)
        self._resuming = self._loop.call_later(_PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        self._resuming = None
        self._loop.add_reader(self._descriptor, self._accept)

    async def _open(self, accepted: socket.socket, address: str) -> None:
        accepted.setblocking(False)
        timeout = min(self._connections.settings.handshake_timeout, _LONGEST_SECONDS)
        context = self._certificates.context if self._certificates is not None else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._protocol(accepted, address),
                accepted,
                ssl=context,
                ssl_handshake_timeout=None if context is None else timeout,
                ssl_shutdown_timeout=None if context is None else _LONGEST_SECONDS,
            )
        except (OSError, TimeoutError):
            # What the other side sent is not TLS, none that is spoken here, or it showed no certificate.
            self._connections.ended("handshake")
            self._connections.left(address)
            accepted.close()
        except asyncio.CancelledError:
            self._connections.left(address)
            accepted.close()
            raise


def _turn_away(accepted: socket.socket, *, plain: bool) -> None:
    """Say why, where that costs one write; whoever wants TLS would have to be spoken with first."""
    with accepted:
        accepted.setblocking(False)
        try:
            if plain:
                accepted.send(refusal(503, "The server has as many connections as it takes", retry_after=1))
                accepted.shutdown(socket.SHUT_WR)
                # What came unread would make the kernel take the answer back.
                accepted.recv(_READ_BYTES)
        except OSError:
            return
