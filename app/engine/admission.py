"""Who may come in: places, for each model and in all, and how long anybody is likely to wait for one."""

import math
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import msgspec

from app.engine.events import Caller
from tasks.exchange.error import ErrorKind, InferenceError, invalid

__all__ = ("LONGEST_TIMEOUT", "RETRY_AFTER", "TIMEOUT_HEADER", "Admission", "Bounds")

TIMEOUT_HEADER = "x-request-timeout-ms"
"""Where senders over HTTP say how many milliseconds they will wait; over gRPC it is the call's own deadline."""

RETRY_AFTER = "retry-after"
"""The header in which an overloaded server says how many seconds to wait (RFC 9110, 10.2.3)."""

LONGEST_TIMEOUT = 30 * 24 * 3600
"""Seconds. Whoever says more says nothing."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests may wait, and how long.

    Attributes:
        max_waiting: so many requests may wait for a worker.
        max_waiting_each: so many of them may be for one model, where that says nothing itself; half of them when absent
            and there is more than one model.
        max_queue_seconds: a request that is likely to wait longer is refused; None for however long.
        request_timeout: seconds that a request may take, where its sender does not give it less; None for any time.
        max_each_client: so many requests and streams of one client may be in hand; None for any number.
    """

    max_waiting: int = 128
    max_waiting_each: int | None = None
    max_queue_seconds: float | None = None
    request_timeout: float | None = None
    max_each_client: int | None = None


class Admission:
    """Lets requests in, and keeps the count of those that are.

    Args:
        workers: so many requests are answered at once.
        bounds: how many more may wait.
        own_bound: how many may wait for a model, where its settings say so.
        several: whether there is more than one model.
        expected_wait: seconds that one more request for a model is likely to wait.
    """

    def __init__(
        self,
        workers: int,
        bounds: Bounds,
        own_bound: Callable[[str], int | None],
        several: Callable[[], bool],
        expected_wait: Callable[[str], float],
    ) -> None:
        self._workers = workers
        self._bounds = bounds
        self._own_bound = own_bound
        self._several = several
        self._expected_wait = expected_wait
        self._lock = threading.Lock()
        self._taken: dict[str, int] = {}
        self._clients: dict[str, int] = {}
        self.in_hand = 0

    @property
    def waiting(self) -> int:
        """Requests that find all workers taken."""
        return max(0, self.in_hand - self._workers)

    def deadline(self, caller: Caller) -> float | None:
        """Until when a request may take, on the clock of `time.monotonic`.

        Raises:
            InferenceError: INVALID_REQUEST, about the header, for a time that is none; DEADLINE_EXCEEDED for one that
                is over.
        """
        timeout, most = caller.timeout, self._bounds.request_timeout
        if timeout is not None:
            if timeout <= 0:
                raise InferenceError(ErrorKind.DEADLINE_EXCEEDED, "The time that the request was given is over")
            if not timeout <= LONGEST_TIMEOUT:
                raise invalid("Expected a number of milliseconds, 30 days of them at most", TIMEOUT_HEADER)
            most = min(timeout, most or math.inf)
        return None if most is None else time.monotonic() + most

    def admit(self, caller: Caller, model: str, deadline: float | None) -> None:
        """Take a place for a request for `model`; `leave` gives it back.

        Raises:
            InferenceError: OVERLOADED, with how long to wait in the headers of the response.
        """
        self.join(caller)
        try:
            self._take(caller, model, deadline)
        except InferenceError:
            self.part(caller)
            raise

    def leave(self, model: str, caller: Caller) -> None:
        """A request for `model` is done with."""
        self.part(caller)
        with self._lock:
            self.in_hand -= 1
            left = self._taken[model] - 1
            if left:
                self._taken[model] = left
            else:
                del self._taken[model]

    def join(self, caller: Caller) -> None:
        """Count what a client has in hand, whoever does it; `part` takes it off again.

        Raises:
            InferenceError: OVERLOADED, as `admit`, when it has enough.
        """
        most, client = self._bounds.max_each_client, caller.client or caller.address
        if most is None or not client:
            return
        with self._lock:
            held = self._clients.get(client, 0)
            if held < most:
                self._clients[client] = held + 1
                return
        caller.returned[RETRY_AFTER] = "1"
        whose = f"the key {caller.client!r}" if caller.client else "your address"
        message = f"The server has {held} requests or streams of {whose} in hand and takes no more; try again later"
        raise InferenceError(ErrorKind.OVERLOADED, message)

    def part(self, caller: Caller) -> None:
        """Something of a client's is done with."""
        client = caller.client or caller.address
        if self._bounds.max_each_client is None or not client:
            return
        with self._lock:
            left = self._clients[client] - 1
            if left:
                self._clients[client] = left
            else:
                del self._clients[client]

    @contextmanager
    def joined(self, caller: Caller) -> Generator[None]:
        """As `join`, and as `part` at the end."""
        self.join(caller)
        try:
            yield
        finally:
            self.part(caller)

    def _take(self, caller: Caller, model: str, deadline: float | None) -> None:
        expected = self._expected_wait(model)
        refusal = self._refusal(model, expected, deadline)
        if refusal:
            caller.returned[RETRY_AFTER] = str(max(1, math.ceil(expected)))
            raise InferenceError(ErrorKind.OVERLOADED, f"{refusal}; try again later")
        with self._lock:
            self.in_hand += 1
            self._taken[model] = self._taken.get(model, 0) + 1

    def _refusal(self, model: str, expected: float, deadline: float | None) -> str:
        bounds = self._bounds
        if self.in_hand >= self._workers + bounds.max_waiting:
            return f"The server has {self.in_hand} requests in hand and takes no more"
        taken = self._taken.get(model, 0)
        if taken > self._workers and taken >= self._workers + self._bound(model):
            return f"The server has {taken} requests for {model!r} in hand and takes no more of them"
        if bounds.max_queue_seconds is not None and expected > bounds.max_queue_seconds:
            return f"A request would have to wait for about {expected:.3g} s"
        if deadline is not None and expected > deadline - time.monotonic():
            return f"A request would have to wait for about {expected:.3g} s, longer than it may take"
        return ""

    def _bound(self, model: str) -> int:
        own = self._own_bound(model)
        if own is not None:
            return own
        each = self._bounds.max_waiting_each
        if each is not None:
            return each
        return self._bounds.max_waiting // 2 if self._several() else self._bounds.max_waiting
