"""Mutators of raw bytes: invalid HTTP/1.1 framing, and HTTP/2 frames for a gRPC port."""

import struct
from collections.abc import Callable, Mapping
from random import Random

from tests.fuzz.mutation.octets import mutate_octets
from tests.fuzz.requests import Bytes, Http, encode_request

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def break_framing(request: Http, random: Random) -> tuple[str, Bytes]:
    """Return the mutation of a request's framing, and the mutated bytes."""
    kind = random.choice(list(FRAMING))
    data = FRAMING[kind](encode_request(request), random)
    return kind, Bytes(protocol=request.protocol, port=request.port, data=data)


def generate_http2(random: Random) -> Bytes:
    """Return bytes for the gRPC port, with or without an HTTP/2 preface."""
    frames = [_frame(random) for _ in range(random.choice((0, 1, 3, 40)))]
    data = random.choice((_PREFACE, _PREFACE, _PREFACE[:-3], b"")) + b"".join(frames)
    data = mutate_octets(data, random) if random.random() < 0.4 else data
    return Bytes(protocol="http2", port="grpc", data=data or b"\0")


def _frame(random: Random) -> bytes:
    payload = random.randbytes(random.choice((0, 4, 6, 8, 36, 300)))
    size = random.choice((len(payload), len(payload), len(payload) + 1, 2**24 - 1))
    kind, flags = random.randrange(12), random.choice((0, 1, 4, 5, 0x2D, 255))
    return (
        struct.pack(">I", size)[1:]
        + bytes((kind, flags))
        + struct.pack(">I", random.choice((0, 1, 2, 3, 2**31)))
        + payload
    )


def _split(wire: bytes) -> tuple[bytes, bytes]:
    head, _, body = wire.partition(b"\r\n\r\n")
    return head, body


def _without_length(head: bytes) -> bytes:
    lines = [
        line for line in head.split(b"\r\n") if not line.lower().startswith((b"content-length", b"transfer-encoding"))
    ]
    return b"\r\n".join(lines)


def _length_too_large(wire: bytes, random: Random) -> bytes:
    head, body = _split(wire)
    length = len(body) + random.choice((1, 100, 10**6))
    return _without_length(head) + b"\r\ncontent-length: %d\r\n\r\n" % length + body


def _length_too_small(wire: bytes, random: Random) -> bytes:
    head, body = _split(wire)
    length = random.randrange(len(body) + 1)
    return _without_length(head) + b"\r\ncontent-length: %d\r\n\r\n" % length + body


def _odd_length(wire: bytes, random: Random) -> bytes:
    head, body = _split(wire)
    length = random.choice(
        (b"-1", b"+3", b"abc", b"", b"1 2", b"0x5", b"9" * 40, b"1\r\ncontent-length: 2", b"1, 1", b"\xff")
    )
    return _without_length(head) + b"\r\ncontent-length: " + length + b"\r\n\r\n" + body


def _both_framings(wire: bytes, random: Random) -> bytes:
    head, body = _split(wire)
    extra = random.choice((b"chunked", b"chunked, identity", b"identity", b"xchunked", b"gzip, chunked", b"Chunked"))
    return _without_length(head) + b"\r\ncontent-length: 5\r\ntransfer-encoding: " + extra + b"\r\n\r\n" + body


def _odd_chunks(wire: bytes, random: Random) -> bytes:
    head, body = _split(wire)
    size = random.choice(
        (b"zz", b"-1", b"ffffffffffffffffff", b"5;ext=1", b"0x5", b"", b" 5", b"5\n", b"fffffff0", b"1" * 300)
    )
    return (
        _without_length(head)
        + b"\r\ntransfer-encoding: chunked\r\n\r\n"
        + size
        + b"\r\n"
        + body[:500]
        + b"\r\n0\r\n\r\n"
    )


def _truncated(wire: bytes, random: Random) -> bytes:
    return wire[: random.randrange(1, len(wire))]


def _request_line(wire: bytes, random: Random) -> bytes:
    _, end, rest = wire.partition(b"\r\n")
    line = random.choice(
        (b"GET / HTTP/9.9", b"GET /", b"GET  / HTTP/1.1", b"get / HTTP/1.1", b"G\0T / HTTP/1.1",
        b"POST http://evil.example/v2 HTTP/1.1", b"GET * HTTP/1.1",
         b"CONNECT a:1 HTTP/1.1", b"GET /\x80\xff HTTP/1.1", b"GET /a b HTTP/1.1",
         b"GET /" + b"a" * 70_000 + b" HTTP/1.1", b"GET / HTTP/1.0", b"\x16\x03\x01\x02",
         b"GET / HTTP/1.1\r\n", b"PRI * HTTP/2.0", b"*", b"GET //evil.example/%2e%2e HTTP/1.1", b"OPTIONS * HTTP/1.1",
         b"GET #x HTTP/1.1")
    )  # fmt: skip
    return line + end + rest


def _header_line(wire: bytes, random: Random) -> bytes:
    line, end, rest = wire.partition(b"\r\n")
    added = random.choice(
        (b"a\0b: c", b": no name", b"no colon", b" folded: x", b"a: b\r\n folded", b"a : b", b"a: " + b"x" * 70_000,
        b"a: \0", b"a: \r", b"x" * 70_000 + b": 1",
         b"\r\n".join(b"h%d: v" % n for n in range(3000)),
         b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAA",
         b"upgrade: h2c\r\nconnection: upgrade, http2-settings\r\nhttp2-settings: AAAA", b"host: a\r\nhost: b",
         b"expect: 999", b"trailer: host")
    )  # fmt: skip
    return line + end + added + end + rest


def _pipelined(wire: bytes, random: Random) -> bytes:
    return wire * random.choice((2, 3, 20))


def _octets(wire: bytes, random: Random) -> bytes:
    head, body = _split(wire)
    return mutate_octets(head, random) + b"\r\n\r\n" + body or b"\0"


def _bare_line_feeds(wire: bytes, random: Random) -> bytes:
    head, body = _split(wire)
    return head.replace(b"\r\n", random.choice((b"\n", b"\r", b"\n\r"))) + b"\n\n" + body


def _noise(wire: bytes, random: Random) -> bytes:
    del wire
    return random.randbytes(random.choice((1, 20, 5000)))


FRAMING: Mapping[str, Callable[[bytes, Random], bytes]] = {
    "more announced than sent": _length_too_large,
    "less announced than sent": _length_too_small,
    "odd length": _odd_length,
    "both framings": _both_framings,
    "odd chunks": _odd_chunks,
    "cut off": _truncated,
    "request line": _request_line,
    "header line": _header_line,
    "pipelined": _pipelined,
    "octets of the head": _octets,
    "bare line feeds": _bare_line_feeds,
    "noise": _noise,
}
"""Mutators of a request's bytes, by name."""
