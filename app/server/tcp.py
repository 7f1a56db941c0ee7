"""What the kernel knows of a connection, and is told to look after by itself."""

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
    """Let the kernel notice clients that vanished; what `listening` accepts inherits it.

    An idle one is probed after a minute and given up after another; what was sent and nobody acknowledges ends the
    connection after two minutes, where it would take the kernel a quarter of an hour.

    Args:
        listening: where they connect to.
        write_timeout: seconds for which a reader may take nothing. The kernel counts them too, so that it has to wait
            for as long.
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
    """Bytes that the other side has taken since the connection was made; None where the kernel does not say."""
    found = _information(connection)
    return _BYTES_ACKED.unpack_from(found)[0] if len(found) >= _BYTES_ACKED.size else None


def unacknowledged(connection: socket.socket) -> int:
    """Segments on their way to the other side."""
    found = _information(connection)
    return _UNACKED.unpack_from(found)[0] if len(found) >= _UNACKED.size else 0


def unsent(connection: socket.socket) -> int:
    """Bytes that the kernel keeps until the other side takes more."""
    found = _information(connection)
    return _NOT_SENT.unpack_from(found)[0] if len(found) >= _NOT_SENT.size else 0


def unread(connection: socket.socket) -> int:
    """Bytes that have come and wait to be read."""
    found = array("i", [0])
    try:
        fcntl.ioctl(connection, termios.FIONREAD, found)
    except OSError:
        return 0
    return found[0]


def is_reset(connection: socket.socket) -> bool:
    """Whether the other side takes nothing any more. True as well where the kernel does not say."""
    found = _information(connection)
    return not found or found[0] == _CLOSED


def reset_when_closed(connection: socket.socket) -> None:
    """Let the kernel forget what it has yet to send, which it would keep for minutes otherwise."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)


def _information(connection: socket.socket) -> bytes:
    option = getattr(socket, "TCP_INFO", None)
    if option is None:
        return b""
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, option, 192)
    except OSError:
        return b""
