"""Close what models still hold when the server ends: the interpreter would stop their daemon threads on the way."""

import atexit
import time
import weakref
from typing import Protocol

_SECONDS = 6.0
"""All of them together may take this long."""


class Closable(Protocol):
    """Something whose threads or processes take a moment to end."""

    def close(self) -> None:
        """Begin to close, without waiting."""
        ...

    def join(self, seconds: float) -> None:
        """Wait up to `seconds` for the end."""
        ...


_open: "weakref.WeakSet[Closable]" = weakref.WeakSet()


def close_at_exit(closable: Closable) -> None:
    """Close an object when this process ends, unless it was dropped before."""
    _open.add(closable)


@atexit.register
def _close_all() -> None:
    closables = list(_open)
    for closable in closables:
        closable.close()
    deadline = time.monotonic() + _SECONDS
    for closable in closables:
        closable.join(max(0.0, deadline - time.monotonic()))
