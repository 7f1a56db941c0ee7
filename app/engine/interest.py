"""Whether anybody still waits for what a worker is doing."""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("Interest", "check_interest", "on_behalf_of")

_here = threading.local()


class Interest:
    """Somebody's interest in an answer, which ends when they leave or when it comes too late.

    Args:
        deadline: on the clock of `time.monotonic`; None for never.
    """

    __slots__ = ("_expired", "_gone", "deadline")

    def __init__(self, deadline: float | None = None) -> None:
        self.deadline = deadline
        self._gone = False
        self._expired = False

    @property
    def left(self) -> float | None:
        """Seconds until the deadline, less than none behind it; None where there is none."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    def leave(self) -> None:
        """Nobody waits any more. May be called from any thread."""
        self._gone = True

    def expire(self) -> None:
        """The deadline has come, by a clock that may be a moment ahead. May be called from any thread."""
        self._expired = True

    @property
    def loss(self) -> InferenceError | None:
        """Why nobody waits any more: CANCELLED or DEADLINE_EXCEEDED; None while somebody does."""
        if self._gone:
            return InferenceError(ErrorKind.CANCELLED, "The sender left before the answer")
        if self._expired or (self.deadline is not None and time.monotonic() >= self.deadline):
            return InferenceError(ErrorKind.DEADLINE_EXCEEDED, "The time that the request was given is over")
        return None

    def check(self) -> None:
        """Go on only while somebody waits.

        Raises:
            InferenceError: the `loss`.
        """
        if (loss := self.loss) is not None:
            raise loss


@contextmanager
def on_behalf_of(interest: Interest) -> Generator[None]:
    """What this thread does inside is done for `interest`."""
    before: Interest | None = getattr(_here, "interest", None)
    _here.interest = interest
    try:
        yield
    finally:
        _here.interest = before


def check_interest() -> None:
    """Stop here when nobody waits any more for what this thread does. Cheap enough for every step of a long answer.

    Raises:
        InferenceError: CANCELLED or DEADLINE_EXCEEDED.
    """
    interest: Interest | None = getattr(_here, "interest", None)
    if interest is not None:
        interest.check()
