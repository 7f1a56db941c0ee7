"""Cancellation tokens: a worker thread checks the token of its request and stops when it is cancelled."""

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Protocol

import msgspec

from tasks.inference.error import ErrorKind, InferenceError

_thread = threading.local()


class AnyToken(Protocol):
    """A token or a combination of tokens."""

    @property
    def cancellation(self) -> InferenceError | None:
        """Return the error of a cancelled request; None while it is active."""
        ...


class CancellationToken(msgspec.Struct, eq=False):
    """The cancellation state of one request: client disconnected, deadline passed, or server stopping.

    Attributes:
        deadline: on the clock of `time.monotonic`; None for no deadline.
        on_shortened: called by the thread that shortens the deadline; None while no coroutine waits.
    """

    deadline: float | None = None
    on_shortened: Callable[[], None] | None = None
    _create_error: Callable[[], InferenceError] | None = None

    @property
    def remaining(self) -> float | None:
        """Return the seconds until the deadline, negative after it; None without a deadline."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    def shorten(self, deadline: float) -> None:
        """Set an earlier deadline; a later one is ignored. Thread-safe."""
        if self.deadline is not None and self.deadline <= deadline:
            return
        self.deadline = deadline
        if (on_shortened := self.on_shortened) is not None:
            on_shortened()

    def cancel(self) -> None:
        """Cancel because the client has disconnected. Thread-safe."""
        # gRPC reports a call that reaches its deadline as a disconnect.
        if self.cancellation is None:
            self._create_error = _disconnected_error

    def expire(self) -> None:
        """Cancel because the deadline has passed on the caller's clock. Thread-safe."""
        self._create_error = self._create_error or deadline_error

    def abort(self) -> None:
        """Cancel because the server stops. Thread-safe."""
        self._create_error = stopping_error

    @property
    def cancellation(self) -> InferenceError | None:
        """Return the error of a cancelled request: CANCELLED, DEADLINE_EXCEEDED or MODEL_NOT_READY; None if active."""
        if self._create_error is not None:
            return self._create_error()
        return deadline_error() if self.deadline is not None and time.monotonic() >= self.deadline else None


class CombinedToken(msgspec.Struct, frozen=True, eq=False):
    """A token for the work of several requests, cancelled when all of them are; None cannot be cancelled."""

    tokens: Sequence[AnyToken | None]

    @property
    def cancellation(self) -> InferenceError | None:
        """Return the error of the first token if all are cancelled, else None."""
        errors = [token.cancellation if token is not None else None for token in self.tokens]
        return errors[0] if errors and all(errors) else None


@contextmanager
def cancellation_scope(token: AnyToken) -> Generator[None]:
    """Make `token` the current token of this thread."""
    previous = exchange_token(token)
    try:
        yield
    finally:
        exchange_token(previous)


def exchange_token(token: AnyToken | None) -> AnyToken | None:
    """Make `token` the current token of this thread. Return the previous one."""
    previous = getattr(_thread, "token", None)
    _thread.token = token
    return previous


def raise_if_cancelled() -> None:
    """Raise the error of the thread's current token if it is cancelled. Cheap enough for every generated text token.

    Raise CANCELLED, DEADLINE_EXCEEDED or MODEL_NOT_READY.
    """
    token = getattr(_thread, "token", None)
    if token is not None and (error := token.cancellation) is not None:
        raise error


def stopping_error() -> InferenceError:
    """Return the error for requests that the server drops while it stops."""
    return InferenceError(ErrorKind.MODEL_NOT_READY, "The server is stopping")


def _disconnected_error() -> InferenceError:
    return InferenceError(ErrorKind.CANCELLED, "The client disconnected before the answer")


def deadline_error() -> InferenceError:
    """Return the error for a request whose deadline has passed."""
    return InferenceError(ErrorKind.DEADLINE_EXCEEDED, "The deadline of the request has passed")


def current_token() -> AnyToken | None:
    """Return the current token of this thread, None outside a request."""
    return getattr(_thread, "token", None)
