"""Query and configure TCP connections in the kernel."""

import fcntl
import socket
import struct
import termios
from array import array

_IDLE_SECONDS = 60
_PROBE_SECONDS = 10
_MAX_PROBES = 6
_UNACKNOWLEDGED_SECONDS = 120
_DAY_SECONDS = 24 * 3600

# struct tcp_info of linux/tcp.h: the state comes first, tcpi_unacked is 24 bytes in, tcpi_bytes_acked 120,
# tcpi_notsent_bytes 144.
_STATE_CLOSED = 7
_UNACKED = struct.Struct("@24xI")
_BYTES_ACKED = struct.Struct("@120xQ")
_NOT_SENT = struct.Struct("@144xI")

_NO_LINGER = struct.pack("ii", 1, 0)


def configure_timeouts(listen_socket: socket.socket, write_timeout: float) -> None:
    """Configure keep-alive and timeouts of `listen_socket`, which accepted sockets inherit, to detect vanished clients.

    The kernel probes an idle connection after one minute and closes it after another. Unacknowledged data closes a
    connection after two minutes; the default would be a quarter of an hour. The timeout of the kernel also counts the
    `write_timeout` seconds for which a client may stop reading, so it is at least twice as long.
    """
    user_timeout = min(max(_UNACKNOWLEDGED_SECONDS, 2 * write_timeout), _DAY_SECONDS)
    listen_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listen_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, _IDLE_SECONDS),
        (socket.TCP_KEEPINTVL, _PROBE_SECONDS),
        (socket.TCP_KEEPCNT, _MAX_PROBES),
        (socket.TCP_USER_TIMEOUT, round(1000 * user_timeout)),
    ):
        listen_socket.setsockopt(socket.IPPROTO_TCP, option, value)


def acknowledged_bytes(connection: socket.socket) -> int | None:
    """Return how many bytes the client has acknowledged in total; None if the kernel does not report it."""
    return _read(connection, _BYTES_ACKED)


def unacknowledged_segments(connection: socket.socket) -> int:
    """Return the number of sent segments without acknowledgement."""
    return _read(connection, _UNACKED) or 0


def unsent_bytes(connection: socket.socket) -> int:
    """Return the number of bytes in the kernel's send buffer that are not sent."""
    return _read(connection, _NOT_SENT) or 0


def unread_bytes(connection: socket.socket) -> int:
    """Return the number of received bytes that are not read; 0 for a closed socket."""
    available = array("i", [0])
    try:
        fcntl.ioctl(connection, termios.FIONREAD, available)
    except (OSError, ValueError):
        # A closed socket has no file descriptor, which is a ValueError.
        return 0
    return available[0]


def is_reset(connection: socket.socket) -> bool:
    """Return whether the connection was reset; also True if the kernel does not report the state."""
    info = _tcp_info(connection)
    return not info or info[0] == _STATE_CLOSED


def reset_when_closed(connection: socket.socket) -> None:
    """Discard unsent data at the close; otherwise the kernel keeps it for minutes."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)


def _read(connection: socket.socket, field: struct.Struct) -> int | None:
    info = _tcp_info(connection)
    return field.unpack_from(info)[0] if len(info) >= field.size else None


def _tcp_info(connection: socket.socket) -> bytes:
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    except OSError:
        return b""
