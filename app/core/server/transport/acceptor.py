"""Open listening sockets, and accept connections or reject them above the limit while file descriptors remain."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from functools import partial

from app.core.server.transport import tcp_info
from app.core.server.transport.connection_table import ConnectionTable
from app.core.server.transport.request_parser import raw_response

_logger = logging.getLogger(__name__)
_MAX_ACCEPTED_AT_ONCE = 128
_BACKLOG = 2048
_PAUSE_SECONDS = 1.0
_EXHAUSTION_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_READ_BYTES = 64 * 1024
_NO_TIMEOUT_SECONDS = 24 * 3600.0
"""Effectively no timeout for the event loop: the timeouts of `Connection` end slow readers and slow TLS shutdowns."""


class Acceptor:
    """Pass the connections of a listening socket, which becomes non-blocking, to protocols.

    `create_protocol` takes the socket of a connection and the IP address of the client.
    """

    def __init__(
        self,
        listen_socket: socket.socket,
        connections: ConnectionTable,
        create_protocol: Callable[[socket.socket, str], asyncio.Protocol],
    ) -> None:
        self._listen_socket = listen_socket
        self._connections = connections
        self._create_protocol = create_protocol
        self._loop = asyncio.get_running_loop()
        self._opening_tasks: set[asyncio.Task[None]] = set()
        self._resume_timer: asyncio.TimerHandle | None = None
        self._listen_fd = listen_socket.fileno()
        listen_socket.setblocking(False)
        listen_socket.listen(_BACKLOG)
        tcp_info.configure_timeouts(listen_socket, connections.settings.write_timeout)
        self._loop.add_reader(self._listen_fd, self._accept)

    def close(self) -> None:
        """Accept pending connections, which the kernel would reset otherwise, and stop."""
        for _ in range(_BACKLOG // _MAX_ACCEPTED_AT_ONCE):
            if not self._accept():
                break
        self._loop.remove_reader(self._listen_fd)
        if self._resume_timer is not None:
            self._resume_timer.cancel()

    def _accept(self) -> bool:
        """Accept some pending connections. Return whether there can be more."""
        for _ in range(_MAX_ACCEPTED_AT_ONCE):
            try:
                client_socket, peer = self._listen_socket.accept()
            except OSError as error:
                if error.errno in _EXHAUSTION_ERRORS:
                    self._pause(error)
                return False
            address = peer[0]
            if not self._connections.try_acquire(address):
                _reject(client_socket, is_plaintext=self._connections.certificates is None)
                continue
            task = self._loop.create_task(self._open(client_socket, address))
            self._opening_tasks.add(task)
            task.add_done_callback(self._opening_tasks.discard)
        return True

    def _pause(self, error: OSError) -> None:
        """Stop accepting for a while: an immediate retry would only use CPU. Connections wait in the kernel."""
        _logger.error("no connection can be accepted for a second", extra={"error": error.strerror})
        self._loop.remove_reader(self._listen_fd)
        self._resume_timer = self._loop.call_later(_PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        self._resume_timer = None
        self._loop.add_reader(self._listen_fd, self._accept)

    async def _open(self, client_socket: socket.socket, address: str) -> None:
        client_socket.setblocking(False)
        timeout = min(self._connections.settings.handshake_timeout, _NO_TIMEOUT_SECONDS)
        certificates = self._connections.certificates
        context = None if certificates is None else certificates.context
        try:
            await self._loop.connect_accepted_socket(
                partial(self._create_protocol, client_socket, address),
                client_socket,
                ssl=context,
                ssl_handshake_timeout=None if context is None else timeout,
                ssl_shutdown_timeout=None if context is None else _NO_TIMEOUT_SECONDS,
            )
        except (OSError, TimeoutError):
            # The client does not speak TLS, supports no common version, or sent no valid certificate.
            self._connections.count_ended("handshake")
            self._connections.release(address)
            client_socket.close()
        except asyncio.CancelledError:
            self._connections.release(address)
            client_socket.close()
            raise


def _reject(client_socket: socket.socket, *, is_plaintext: bool) -> None:
    """Send the reason if one write is enough; TLS would need a handshake first."""
    with client_socket:
        client_socket.setblocking(False)
        try:
            if is_plaintext:
                client_socket.send(raw_response(503, "The server has reached its connection limit", retry_after=1))
                client_socket.shutdown(socket.SHUT_WR)
                # Unread data would make the kernel discard the response.
                client_socket.recv(_READ_BYTES)
        except OSError:
            return


class ListenError(Exception):
    """The server cannot listen on the configured address."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"Cannot listen on {host}:{port}: {reason}")
        self.port = port


def open_listen_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address.

    Raises:
        ListenError: if the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server_socket = socket.socket(family, socket.SOCK_STREAM)
    try:
        server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server_socket.bind((host, port))
        # Listen now: several sockets can be bound to one address until one of them listens.
        server_socket.listen()
    except OSError as error:
        server_socket.close()
        raise ListenError(host, port, error.strerror or str(error)) from None
    return server_socket


def connectable_host(host: str) -> str:
    """Return the host in a form that a client on this machine can use."""
    if host in ("0.0.0.0", "::"):  # noqa: S104  compared with, not bound to
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
