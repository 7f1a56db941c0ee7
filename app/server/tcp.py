"""Query and configure TCP connections in the kernel."""

import fcntl
import socket
import struct
import termios
from array import array

__all__ = ("acknowledged", "is_reset", "reset_when_closed", "unacknowledged", "unread", "unsent", "watch")

_IDLE_SECONDS = 60
_PROBE_SECONDS = 10
_PROBES = 6
_UNACKNOWLEDGED_SECONDS = 120
_DAY = 24 * 3600

# struct tcp_info of linux/tcp.h: the state comes first, tcpi_unacked is 24 bytes in, tcpi_bytes_acked 120,
# tcpi_notsent_bytes 144.
_CLOSED = 7
_UNACKED = struct.Struct("@24xI")
_BYTES_ACKED = struct.Struct("@120xQ")
_NOT_SENT = struct.Struct("@144xI")

_NO_LINGER = struct.pack("ii", 1, 0)


def watch(listening: socket.socket, write_timeout: float) -> None:
    """Configure keep-alive and timeouts of `listening`, which accepted sockets inherit, to detect vanished clients.

    The kernel probes an idle connection after one minute and closes it after another. Unacknowledged data closes a
    connection after two minutes; the default would be a quarter of an hour.

    Args:
        listening: the listening socket.
        write_timeout: seconds for which a client may stop reading. The timeout of the kernel counts them too, so it is
            at least twice as long.
    """
    unacknowledged = min(max(_UNACKNOWLEDGED_SECONDS, 2 * write_timeout), _DAY)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _IDLE_SECONDS),
        ("TCP_KEEPINTVL", _PROBE_SECONDS),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", round(1000 * unacknowledged)),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            listening.setsockopt(socket.IPPROTO_TCP, option, value)


def acknowledged(connection: socket.socket) -> int | None:
    """Return how many bytes the client has acknowledged in total; None if the kernel does not report it."""
    found = _information(connection)
    return _BYTES_ACKED.unpack_from(found)[0] if len(found) >= _BYTES_ACKED.size else None


def unacknowledged(connection: socket.socket) -> int:
    """Return the number of sent segments without acknowledgement."""
    found = _information(connection)
    return _UNACKED.unpack_from(found)[0] if len(found) >= _UNACKED.size else 0


def unsent(connection: socket.socket) -> int:
    """Return the number of bytes in the kernel's send buffer that are not sent."""
    found = _information(connection)
    return _NOT_SENT.unpack_from(found)[0] if len(found) >= _NOT_SENT.size else 0


def unread(connection: socket.socket) -> int:
    """Return the number of received bytes that are not read."""
    found = array("i", [0])
    try:
        fcntl.ioctl(connection, termios.FIONREAD, found)
    except OSError:
        return 0
    return found[0]


def is_reset(connection: socket.socket) -> bool:
    """Return whether the connection was reset; also True if the kernel does not report the state."""
    found = _information(connection)
    return not found or found[0] == _CLOSED


def reset_when_closed(connection: socket.socket) -> None:
    """Discard unsent data at the close; otherwise the kernel keeps it for minutes."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)


def _information(connection: socket.socket) -> bytes:
    option = getattr(socket, "TCP_INFO", None)
    if option is None:
        return b""
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, option, 192)
    except OSError:
        return b""
