"""Flood a gRPC port with calls that never send their message, from hand-made HTTP/2 frames over loopback."""

import socket
import time

from tests.faults.gated import GRPC_METHOD

CONNECTIONS_PER_SECOND = 120
STREAMS = 100
"""Calls on each connection: with 120 connections a second, more than Python can accept."""

OVERSIZED_MESSAGE = b"\x00\x7f\xff\xff\xff"
"""The start of a message that announces 2 GB."""

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_HEADERS = 4
_POST_AND_HTTP = b"\x83\x86"
"""Indexes of HPACK's static table."""


def flood(port: int, seconds: float, method: str = GRPC_METHOD, message_start: bytes = b"") -> int:
    """Open connections for some seconds, start calls on each, close it without waiting, and return how many calls."""
    data = _calls(method.encode(), message_start)
    began, count = time.monotonic(), 0
    while count < seconds * CONNECTIONS_PER_SECOND and time.monotonic() < began + 2 * seconds:
        time.sleep(max(0.0, began + count / CONNECTIONS_PER_SECOND - time.monotonic()))
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(data)
        count += 1
    return count * STREAMS


def _calls(method: bytes, message_start: bytes) -> bytes:
    fields = {b":path": method, b":authority": b"127.0.0.1", b"content-type": b"application/grpc", b"te": b"trailers"}
    headers = _POST_AND_HTTP + b"".join(_literal(name, value) for name, value in fields.items())
    data = _PREFACE + _frame(_SETTINGS, 0, 0, b"")
    for stream in range(1, 2 * STREAMS, 2):
        data += _frame(_HEADERS, _END_HEADERS, stream, headers)
        if message_start:
            data += _frame(_DATA, 0, stream, message_start)
    return data


def _literal(name: bytes, value: bytes) -> bytes:
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
