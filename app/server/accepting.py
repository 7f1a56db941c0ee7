"""Accept connections from a listening socket, and reject them above the limit while file descriptors remain."""

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
_MAX_ACCEPTED_AT_ONCE = 128
_BACKLOG = 2048
_PAUSE_SECONDS = 1.0
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_READ_BYTES = 64 * 1024
_NO_TIMEOUT_SECONDS = 24 * 3600.0
"""Effectively no timeout for the event loop: the timeouts of `Connection` end slow readers and slow TLS shutdowns."""


class Acceptor:
    """Pass the connections of a listening socket to protocols. It closes like an asyncio server.

    Args:
        listening: the listening socket; non-blocking afterwards.
        connections: counts and limits them.
        protocol: creates the protocol of a connection from its socket and the IP address of the client.
        certificates: certificates for TLS; None for no TLS.
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
        """Accept pending connections, which the kernel would reset otherwise, and stop."""
        for _ in range(_BACKLOG // _MAX_ACCEPTED_AT_ONCE):
            if not self._accept():
                break
        self._loop.remove_reader(self._descriptor)
        if self._resuming is not None:
            self._resuming.cancel()

    async def wait_closed(self) -> None:
        """Return without waiting: the server waits for its connections itself."""

    def _accept(self) -> bool:
        """Accept some pending connections. Return whether there can be more."""
        for _ in range(_MAX_ACCEPTED_AT_ONCE):
            try:
                accepted, peer = self._listening.accept()
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._pause(error)
                return False
            address = peer[0]
            if not self._connections.admit(address):
                _reject(accepted, plain=self._certificates is None)
                continue
            task = self._loop.create_task(self._open(accepted, address))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        return True

    def _pause(self, error: OSError) -> None:
        """Stop accepting for a while: an immediate retry would only use CPU. Connections wait in the kernel."""
        _logger.error("no connection can be accepted for a second", extra={"error": error.strerror})
        self._loop.remove_reader(self._descriptor)
        self._resuming = self._loop.call_later(_PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        self._resuming = None
        self._loop.add_reader(self._descriptor, self._accept)

    async def _open(self, accepted: socket.socket, address: str) -> None:
        accepted.setblocking(False)
        timeout = min(self._connections.settings.handshake_timeout, _NO_TIMEOUT_SECONDS)
        context = self._certificates.context if self._certificates is not None else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._protocol(accepted, address),
                accepted,
                ssl=context,
                ssl_handshake_timeout=None if context is None else timeout,
                ssl_shutdown_timeout=None if context is None else _NO_TIMEOUT_SECONDS,
            )
        except (OSError, TimeoutError):
            # The client does not speak TLS, supports no common version, or sent no valid certificate.
            self._connections.ended("handshake")
            self._connections.left(address)
            accepted.close()
        except asyncio.CancelledError:
            self._connections.left(address)
            accepted.close()
            raise


def _reject(accepted: socket.socket, *, plain: bool) -> None:
    """Send the reason if one write is enough; TLS would need a handshake first."""
    with accepted:
        accepted.setblocking(False)
        try:
            if plain:
                accepted.send(refusal(503, "The server has reached its connection limit", retry_after=1))
                accepted.shutdown(socket.SHUT_WR)
                # Unread data would make the kernel discard the response.
                accepted.recv(_READ_BYTES)
        except OSError:
            return
