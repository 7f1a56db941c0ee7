"""Names for requests and events that nobody else has."""

import random
import uuid

__all__ = ("event_id", "request_id")

# Seeded by the system once: asking it for every request costs a system call and a change of threads. The names keep
# things apart and guard nothing.
_RANDOM = random.Random()  # noqa: S311
_BITS = 128


def event_id() -> str:
    """32 hexadecimal digits, random."""
    return f"{_RANDOM.getrandbits(_BITS):032x}"


def request_id() -> str:
    """A random UUID (RFC 9562, version 4)."""
    return str(uuid.UUID(int=_RANDOM.getrandbits(_BITS), version=4))
