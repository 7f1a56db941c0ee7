"""Mutators of how bytes are written down: base64, gzip, deflate."""

import base64
import gzip
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from random import Random

from tests.fuzz.mutation.octets import mutated_octets

__all__ = ("COMPRESSED", "mutated_base64")

_BOMB = 80_000_000


def mutated_base64(data: bytes, random: Random) -> str:
    """`data` as base64: most often as it should be, else with one fault of those that encoders make."""
    text = base64.b64encode(data).decode()
    match random.randrange(12):
        case 0:
            return text.rstrip("=")
        case 1:
            return base64.urlsafe_b64encode(data).decode()
        case 2:
            return "\n".join(text[at : at + 76] for at in range(0, len(text), 76))
        case 3:
            return f"data:image/{random.choice(('png', 'x', ''))};base64,{text}"
        case 4:
            return text[: random.randrange(len(text) + 1)]
        case 5:
            at = random.randrange(len(text) + 1)
            return text[:at] + random.choice(("=", "\0", "é", "*", "==", " ", "-_")) + text[at:]
        case _:
            return text


def _gzip(body: bytes, random: Random) -> tuple[bytes, bytes]:
    return b"gzip", gzip.compress(body, random.choice((0, 1, 9)), mtime=0)


def _broken_gzip(body: bytes, random: Random) -> tuple[bytes, bytes]:
    return b"gzip", mutated_octets(_zipped(body), random)


def _gzip_twice(body: bytes, random: Random) -> tuple[bytes, bytes]:
    return random.choice((b"gzip", b"gzip, gzip")), _zipped(_zipped(body))


def _members(body: bytes, random: Random) -> tuple[bytes, bytes]:
    at = random.randrange(len(body) + 1)
    return b"gzip", _zipped(body[:at]) + _zipped(body[at:])


def _trailing(body: bytes, random: Random) -> tuple[bytes, bytes]:
    return b"gzip", _zipped(body) + random.randbytes(random.randrange(1, 20))


def _deflate(body: bytes, random: Random) -> tuple[bytes, bytes]:
    raw = zlib.compressobj(wbits=-15)
    return b"deflate", random.choice((zlib.compress(body), raw.compress(body) + raw.flush()))


def _not_compressed(body: bytes, random: Random) -> tuple[bytes, bytes]:
    return random.choice((b"gzip", b"deflate", b"br", b"zstd", b"identity", b"gzip;q=0", b"", b"\xff")), body


def _bomb(body: bytes, random: Random) -> tuple[bytes, bytes]:
    """A thousand times what it weighs: over the limit of what a body may unfold to."""
    del body
    return b"gzip", _squeezed(random.choice((b" ", b"[", b"\0")))


def _zipped(data: bytes) -> bytes:
    # Without the time, so that a seed says everything.
    return gzip.compress(data, mtime=0)


@cache
def _squeezed(octet: bytes) -> bytes:
    squeezed = zlib.compressobj(9, wbits=31)
    block = octet * 1_000_000
    return b"".join(squeezed.compress(block) for _ in range(_BOMB // len(block))) + squeezed.flush()


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
"""From a body to its Content-Encoding and what is sent."""
