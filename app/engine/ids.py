"""Unique ids for requests and events."""

import os
import random
import time

__all__ = ("event_id", "request_id")

# Seeded once: `os.urandom` for every request costs a system call and releases the GIL. The ids are not secrets.
_RANDOM = random.Random()  # noqa: S311
os.register_at_fork(after_in_child=_RANDOM.seed)


def event_id() -> str:
    """Return 32 hexadecimal digits: 12 of the milliseconds since 1970, for ordered storage, the rest random."""
    return f"{time.time_ns() // 1_000_000:012x}{_RANDOM.getrandbits(80):020x}"


def request_id() -> str:
    """Return a random UUID (RFC 9562, version 4)."""
    digits = f"{_RANDOM.getrandbits(128):032x}"
    variant = "89ab"[int(digits[16], 16) % 4]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
