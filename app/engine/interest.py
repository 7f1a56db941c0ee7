"""Cancellation tokens: a worker thread checks the token of its request and stops when it is cancelled."""

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Protocol

from tasks.exchange.error import ErrorKind, InferenceError

__all__ = (
    "CancellationToken",
    "CombinedToken",
    "check_interest",
    "current_interest",
    "late",
    "on_behalf_of",
    "stopping",
)

_thread = threading.local()


class AnyToken(Protocol):
    """A token or a combination of tokens."""

    @property
    def loss(self) -> InferenceError | None:
        """Return the error of a cancelled request; None while it is active."""
        ...


class CancellationToken:
    """The cancellation state of one request: client disconnected, deadline passed, or server stopping.

    Args:
        deadline: on the clock of `time.monotonic`; None for no deadline.

    Attributes:
        on_shortened: called by the thread that shortens the deadline; None while no coroutine waits.
    """

    __slots__ = ("_cut", "_expired", "_gone", "deadline", "on_shortened")

    def __init__(self, deadline: float | None = None) -> None:
        self.deadline = deadline
        self.on_shortened: Callable[[], None] | None = None
        self._gone = False
        self._expired = False
        self._cut = False

    @property
    def left(self) -> float | None:
        """Return the seconds until the deadline, negative after it; None without a deadline."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    def shorten(self, deadline: float) -> None:
        """Set an earlier deadline; a later one is ignored. Thread-safe."""
        if self.deadline is not None and self.deadline <= deadline:
            return
        self.deadline = deadline
        if (on_shortened := self.on_shortened) is not None:
            on_shortened()

    def leave(self) -> None:
        """Cancel because the client has disconnected. Thread-safe."""
        # gRPC reports a call that reaches its deadline as a disconnect.
        if self.loss is None:
            self._gone = True

    def expire(self) -> None:
        """Cancel because the deadline has passed on the caller's clock. Thread-safe."""
        self._expired = True

    def cut(self) -> None:
        """Cancel because the server stops. Thread-safe."""
        self._cut = True

    @property
    def loss(self) -> InferenceError | None:
        """Return the error of a cancelled request: CANCELLED, DEADLINE_EXCEEDED or MODEL_NOT_READY; None if active."""
        if self._cut:
            return stopping()
        if self._gone:
            return InferenceError(ErrorKind.CANCELLED, "The client disconnected before the answer")
        if self._expired or (self.deadline is not None and time.monotonic() >= self.deadline):
            return late()
        return None


class CombinedToken:
    """A token for the work of several requests, cancelled when all of them are.

    Args:
        interests: the tokens of the requests; None for a request that cannot be cancelled.
    """

    __slots__ = ("_interests",)

    def __init__(self, interests: Sequence[AnyToken | None]) -> None:
        self._interests = interests

    @property
    def loss(self) -> InferenceError | None:
        """Return the error of the first token if all are cancelled, else None."""
        errors = [interest.loss if interest is not None else None for interest in self._interests]
        return errors[0] if errors and all(errors) else None


@contextmanager
def on_behalf_of(interest: AnyToken) -> Generator[None]:
    """Make `interest` the current token of this thread."""
    previous = current_interest()
    _thread.interest = interest
    try:
        yield
    finally:
        _thread.interest = previous


def check_interest() -> None:
    """Raise the error of the thread's current token if it is cancelled. Cheap enough for every generated token.

    Raises:
        InferenceError: CANCELLED, DEADLINE_EXCEEDED or MODEL_NOT_READY.
    """
    interest = current_interest()
    if interest is not None and (loss := interest.loss) is not None:
        raise loss


def stopping() -> InferenceError:
    """Return the error for requests that the server drops while it stops."""
    return InferenceError(ErrorKind.MODEL_NOT_READY, "The server is stopping")


def late() -> InferenceError:
    """Return the error for a request whose deadline has passed."""
    return InferenceError(ErrorKind.DEADLINE_EXCEEDED, "The deadline of the request has passed")


def current_interest() -> AnyToken | None:
    """Return the current token of this thread, None outside a request."""
    return getattr(_thread, "interest", None)
