"""Wait for a free member of a pool. The number of waiting requests and their time are limited."""

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext

from app.core.engine.cancellation import raise_if_cancelled
from app.core.engine.scheduling.thread_pool import release_worker
from tasks.inference.error import ErrorKind, InferenceError

_POLL_SECONDS = 0.25
"""Interval between checks for cancellation of a waiting request."""
_MAX_WAITING_PER_MEMBER = 32
"""Requests that may wait for each member, so that a slow model cannot fill the server's queue."""


class WaitingRequests:
    """The requests that wait for one of the `members` of a pool, each for up to `seconds`.

    Attributes:
        changed: notified whenever a member becomes free.
        count: number of requests that wait.
    """

    def __init__(self, members: int, seconds: float) -> None:
        self.changed = threading.Condition()
        self._max_waiting = members * _MAX_WAITING_PER_MEMBER
        self._seconds = seconds
        self.count = 0

    def wait(self, is_ready: Callable[[], bool], *, keeps_worker: bool = False) -> None:
        """Wait until `is_ready`. The caller holds `changed`.

        Raise OVERLOADED if too many requests wait, or this one waits for too long; CANCELLED or DEADLINE_EXCEEDED if
        the request ends; any error of `is_ready`.

        Args:
            is_ready: whether the request may go on; raises an `InferenceError` if waiting is in vain.
            keeps_worker: whether to keep the worker at first. A released worker would decode images of further requests
                that the model cannot process soon.
        """
        deadline = time.monotonic() + self._seconds
        try:
            raise_if_cancelled()
            while not is_ready():
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    message = f"The model was busy for {self._seconds:g} s; try again later"
                    raise InferenceError(ErrorKind.OVERLOADED, message)
                if self.count >= self._max_waiting:
                    message = f"{self.count} requests already wait for the model; try again later"
                    raise InferenceError(ErrorKind.OVERLOADED, message)
                self.count += 1
                try:
                    with nullcontext() if keeps_worker else release_worker():
                        self.changed.wait_for(is_ready, min(remaining, _POLL_SECONDS))
                finally:
                    self.count -= 1
                keeps_worker = False
                raise_if_cancelled()
        except InferenceError:
            # Pass on a notification that this request may have consumed.
            self.changed.notify()
            raise
