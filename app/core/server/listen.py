"""Open listening sockets, and raise the limit of open files that their connections need."""

import errno
import resource
import socket

from app.core.settings.server import SettingsError

_IDLE_SECONDS = 60
_PROBE_SECONDS = 10
_MAX_PROBES = 6
_DAY_SECONDS = 24 * 3600

_DEFAULT_MAX_CONNECTIONS = 10_000
_RESERVED_FILES = 512
"""File descriptors besides HTTP connections: models, recordings, logs, and gRPC connections, which are not counted."""
_MAX_FILES = 65_536


class ListenError(Exception):
    """The server cannot listen on the configured address."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"Cannot listen on {host}:{port}: {reason}")
        self.port = port


def open_listen_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address.

    Raise SettingsError if the host is no address of this machine. Raise ListenError if the port cannot be used.
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
        reason = error.strerror or str(error)
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            message = f"Cannot listen on {host}: {reason}. Expected an address of this machine in --host"
            raise SettingsError(message) from None
        raise ListenError(host, port, reason) from None
    return server_socket


def connectable_host(host: str) -> str:
    """Return the host in a form that a client on this machine can use."""
    if host in ("0.0.0.0", "::"):  # noqa: S104  compared with, not bound to
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def set_timeouts(listen_socket: socket.socket, write_timeout: float) -> None:
    """Let the kernel end connections of clients that vanish, or do not read, for `write_timeout` seconds.

    Accepted sockets inherit these options. The kernel probes an idle connection after a minute.
    """
    milliseconds = round(1000 * min(write_timeout, _DAY_SECONDS))
    listen_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listen_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, _IDLE_SECONDS),
        (socket.TCP_KEEPINTVL, _PROBE_SECONDS),
        (socket.TCP_KEEPCNT, _MAX_PROBES),
        (socket.TCP_USER_TIMEOUT, milliseconds),
    ):
        listen_socket.setsockopt(socket.IPPROTO_TCP, option, value)


def connection_limit(max_connections: int | None, max_open_files: int) -> int:
    """Return how many HTTP connections may be open: `max_connections`, or by default what the open files allow.

    Raise SettingsError if `max_connections` needs more open files.
    """
    available = max(max_open_files - _RESERVED_FILES, max_open_files // 2)
    if max_connections is not None and max_connections > available:
        message = f"--max-connections {max_connections:,} needs a higher limit of open files (ulimit -n)"
        raise SettingsError(f"{message}: {max_open_files:,} leave room for {available:,}")
    return max_connections or min(_DEFAULT_MAX_CONNECTIONS, available)


def raise_file_limit() -> int:
    """Raise the limit of open files of the process within reason, and return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MAX_FILES
    target = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    return max(soft, target)
