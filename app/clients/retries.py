"""Decide how often a client repeats a request."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

_DELAYS_S = (0.2, 0.4, 0.8, 1.6)
_PERSISTENT_DELAYS_S = (*_DELAYS_S, 3.0, *([5.0] * 58))


@dataclass(frozen=True, slots=True)
class Retries:
    """How a client repeats requests that a server was too busy to answer.

    A persistent client waits five minutes in all, in which a server can restart, also if the server cannot be reached.
    It calls `on_wait` with the reason then.
    """

    persistent: bool = False
    on_wait: Callable[[str], object] = lambda _: None

    @property
    def delays(self) -> Sequence[float | None]:
        """Return the delay in seconds after each attempt; None after the last."""
        return (*(_PERSISTENT_DELAYS_S if self.persistent else _DELAYS_S), None)
