"""Whether anybody still waits for what a worker is doing."""

import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Protocol

from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("Interest", "JointInterest", "check_interest", "current_interest", "late", "on_behalf_of", "stopping")

_here = threading.local()


class AnyInterest(Protocol):
    """Whether there is interest in an answer."""

    @property
    def loss(self) -> InferenceError | None:
        """Why nobody waits any more; None while somebody does."""
        ...


class Interest:
    """Somebody's interest in an answer, which ends when they leave or when it comes too late.

    Args:
        deadline: on the clock of `time.monotonic`; None for never.
    """

    __slots__ = ("_cut", "_expired", "_gone", "deadline")

    def __init__(self, deadline: float | None = None) -> None:
        self.deadline = deadline
        self._gone = False
        self._expired = False
        self._cut = False

    @property
    def left(self) -> float | None:
        """Seconds until the deadline, less than none behind it; None where there is none."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    def leave(self) -> None:
        """Nobody waits any more. May be called from any thread."""
        # gRPC ends a call at its deadline as if its sender had left.
        if self.loss is None:
            self._gone = True

    def expire(self) -> None:
        """The deadline has come, by a clock that may be a moment ahead. May be called from any thread."""
        self._expired = True

    def cut(self) -> None:
        """The server does not wait any more, because it stops. May be called from any thread."""
        self._cut = True

    @property
    def loss(self) -> InferenceError | None:
        """Why nobody waits any more: CANCELLED, DEADLINE_EXCEEDED or MODEL_NOT_READY; None while somebody does."""
        if self._cut:
            return stopping()
        if self._gone:
            return InferenceError(ErrorKind.CANCELLED, "The sender left before the answer")
        if self._expired or (self.deadline is not None and time.monotonic() >= self.deadline):
            return late()
        return None


class JointInterest:
    """The interest of several in the same work, which ends when the last of them loses it.

    Args:
        interests: theirs; None of whoever asks for ever.
    """

    __slots__ = ("_interests",)

    def __init__(self, interests: Sequence[AnyInterest | None]) -> None:
        self._interests = interests

    @property
    def loss(self) -> InferenceError | None:
        """Why none of them waits any more; None while one does."""
        losses = [each.loss if each is not None else None for each in self._interests]
        return losses[0] if losses and all(losses) else None


@contextmanager
def on_behalf_of(interest: AnyInterest) -> Generator[None]:
    """What this thread does inside is done for `interest`."""
    before = current_interest()
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
    interest = current_interest()
    if interest is not None and (loss := interest.loss) is not None:
        raise loss


def stopping() -> InferenceError:
    """What becomes of a request that no worker takes up any more."""
    return InferenceError(ErrorKind.MODEL_NOT_READY, "The server is stopping")


def late() -> InferenceError:
    """What becomes of a request that takes longer than it may."""
    return InferenceError(ErrorKind.DEADLINE_EXCEEDED, "The time that the request was given is over")


def current_interest() -> AnyInterest | None:
    """On whose behalf this thread works, None for nobody's in particular."""
    return getattr(_here, "interest", None)
