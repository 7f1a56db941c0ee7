"""Mutators of encodings: base64, gzip, deflate."""

import base64
import gzip
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from random import Random

from tests.fuzz.mutation.octets import mutate_octets

_BOMB = 80_000_000


def encode_mutated_base64(data: bytes, random: Random) -> str:
    """Return base64 of `data`, mostly valid, sometimes with a typical encoder error."""
    text = base64.b64encode(data).decode()
    match random.randrange(12):
        case 0:
            return text.rstrip("=")
        case 1:
            return base64.urlsafe_b64encode(data).decode()
        case 2:
            return "\n".join(text[index : index + 76] for index in range(0, len(text), 76))
        case 3:
            return f"data:image/{random.choice(('png', 'x', ''))};base64,{text}"
        case 4:
            return text[: random.randrange(len(text) + 1)]
        case 5:
            index = random.randrange(len(text) + 1)
            return text[:index] + random.choice(("=", "\0", "é", "*", "==", " ", "-_")) + text[index:]
        case _:
            return text


def _gzip(body: bytes, random: Random) -> tuple[bytes, bytes]:
    return b"gzip", gzip.compress(body, random.choice((0, 1, 9)), mtime=0)


def _broken_gzip(body: bytes, random: Random) -> tuple[bytes, bytes]:
    return b"gzip", mutate_octets(_gzip_bytes(body), random)


def _gzip_twice(body: bytes, random: Random) -> tuple[bytes, bytes]:
    return random.choice((b"gzip", b"gzip, gzip")), _gzip_bytes(_gzip_bytes(body))


def _members(body: bytes, random: Random) -> tuple[bytes, bytes]:
    index = random.randrange(len(body) + 1)
    return b"gzip", _gzip_bytes(body[:index]) + _gzip_bytes(body[index:])


def _trailing(body: bytes, random: Random) -> tuple[bytes, bytes]:
    return b"gzip", _gzip_bytes(body) + random.randbytes(random.randrange(1, 20))


def _deflate(body: bytes, random: Random) -> tuple[bytes, bytes]:
    raw = zlib.compressobj(wbits=-15)
    return b"deflate", random.choice((zlib.compress(body), raw.compress(body) + raw.flush()))


def _not_compressed(body: bytes, random: Random) -> tuple[bytes, bytes]:
    return random.choice((b"gzip", b"deflate", b"br", b"zstd", b"identity", b"gzip;q=0", b"", b"\xff")), body


def _bomb(body: bytes, random: Random) -> tuple[bytes, bytes]:
    """Return a body that exceeds the limit after decompression."""
    del body
    return b"gzip", _compress_repeated(random.choice((b" ", b"[", b"\0")))


def _gzip_bytes(data: bytes) -> bytes:
    # A fixed mtime keeps requests reproducible.
    return gzip.compress(data, mtime=0)


@cache
def _compress_repeated(octet: bytes) -> bytes:
    compressor = zlib.compressobj(9, wbits=31)
    block = octet * 1_000_000
    return b"".join(compressor.compress(block) for _ in range(_BOMB // len(block))) + compressor.flush()


COMPRESSED: Mapping[str, Callable[[bytes, Random], tuple[bytes, bytes]]] = {
    "gzip": _gzip,
    "broken gzip": _broken_gzip,
    "gzip twice": _gzip_twice,
    "gzip members": _members,
    "gzip with more behind": _trailing,
    "deflate": _deflate,
    "encoding that it has not": _not_compressed,
    "gzip bomb": _bomb,
}
"""Functions that return the Content-Encoding and the encoded body, by name."""
