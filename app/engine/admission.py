"""Admit or refuse requests: limits in total, for each model and for each client, and estimated waits."""

import math
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import count

import msgspec

from app.engine.events import RequestInfo
from tasks.exchange.error import ErrorKind, InferenceError, invalid

__all__ = ("ARRIVED", "LONGEST_TIMEOUT", "RETRY_AFTER", "TIMEOUT_HEADER", "Admission", "Bounds", "Excess")

ARRIVED: ContextVar[Callable[[], object] | None] = ContextVar("ARRIVED", default=None)
"""The callback of `Admission.expect` for the current request; `admit` calls it."""

_ARRIVAL_SECONDS = 0.1
"""A body that takes longer to arrive no longer counts: slow clients must not keep others out."""

_MIN_ARRIVALS = 32
"""Bodies that may always arrive at once: with a short queue, small bodies are often read before a worker is free."""

TIMEOUT_HEADER = "x-request-timeout-ms"
"""The header, or key of gRPC metadata, with the client's timeout in milliseconds; gRPC calls have deadlines too."""

RETRY_AFTER = "retry-after"
"""The header with the seconds after which a client should retry (RFC 9110, 10.2.3)."""

LONGEST_TIMEOUT = 30 * 24 * 3600
"""Longest accepted timeout in seconds; a longer header is rejected, a longer deadline of a gRPC call is cut to it."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the queue of requests.

    Attributes:
        max_waiting: requests that may wait for a worker.
        max_waiting_each: requests that may wait for one model, unless its settings give a number. By default half of
            `max_waiting` if there is more than one model.
        max_queue_seconds: a request with a longer estimated wait is refused; None for no limit.
        request_timeout: seconds that a request may take; clients may ask for less. None for no limit.
        max_each_client: requests and streams of one client that may be in flight; None for no limit.
    """

    max_waiting: int = 128
    max_waiting_each: int | None = None
    max_queue_seconds: float | None = None
    request_timeout: float | None = None
    max_each_client: int | None = None


class Excess(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request is refused.

    Attributes:
        message: for the client.
        retry_after: seconds after which the client should try again.
    """

    message: str
    retry_after: int


class Admission:
    """Admit requests within limits, and count the requests in flight.

    Args:
        workers: number of requests that are answered at once.
        bounds: limits on requests that wait.
        own_bound: return the `max_waiting` of a model's settings, None if they have none.
        several: return whether there is more than one model.
        expected_wait: return the seconds that one more request for a model is likely to wait.
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
        self._arriving: dict[int, float] = {}
        self._arrivals = count()
        self.in_hand = 0
        self.last_admitted = -math.inf

    @property
    def waiting(self) -> int:
        """Return the number of requests beyond those that the workers can run."""
        return max(0, self.in_hand - self._workers)

    def expect(self) -> Callable[[], object]:
        """Count a request whose body is arriving. Call in the event loop; call the result when the body is complete."""
        number = next(self._arrivals)
        self._arriving[number] = time.monotonic() + _ARRIVAL_SECONDS
        return partial(self._arriving.pop, number, None)

    def excess(self, model: str | None) -> Excess | None:
        """Return why a request would be refused after its body has arrived; None if it would be admitted.

        Args:
            model: its model; None to check only the limits that are the same for every model.
        """
        arriving = self._expected_arrivals()
        max_in_flight = self._workers + self._bounds.max_waiting
        if arriving and self.in_hand < max_in_flight and self.in_hand + arriving >= max(max_in_flight, _MIN_ARRIVALS):
            return self._excess(_full(self.in_hand + arriving), 0)
        if model is None:
            return self._excess(_full(self.in_hand), 0) if self.in_hand >= max_in_flight else None
        expected_wait = self._expected_wait(model)
        refusal = self._refusal(model, expected_wait, None)
        return self._excess(refusal, expected_wait) if refusal else None

    def check(self, caller: RequestInfo, model: str) -> None:
        """Refuse a request that `admit` would refuse now.

        Raises:
            InferenceError: OVERLOADED; sets the header retry-after of the response.
        """
        expected_wait = self._expected_wait(model)
        self._raise(caller, self._refusal(model, expected_wait, None), expected_wait)

    def deadline(self, caller: RequestInfo) -> float | None:
        """Return the deadline of a request on the clock of `time.monotonic`, None for no deadline.

        Raises:
            InferenceError: INVALID_REQUEST, with the header as path, for an invalid timeout; DEADLINE_EXCEEDED for a
                timeout that is not positive.
        """
        timeout, max_seconds = caller.timeout, self._bounds.request_timeout
        if timeout is not None:
            if timeout <= 0:
                raise InferenceError(ErrorKind.DEADLINE_EXCEEDED, "The deadline of the request has passed")
            if not timeout <= LONGEST_TIMEOUT:
                raise invalid("Expected a number of milliseconds, at most those of 30 days", TIMEOUT_HEADER)
            max_seconds = min(timeout, max_seconds or math.inf)
        return None if max_seconds is None else time.monotonic() + max_seconds

    def admit(self, caller: RequestInfo, model: str, deadline: float | None) -> float | None:
        """Count a request for `model` as in flight; `leave` ends that.

        Returns:
            The seconds that it may wait for a worker. None for no limit, also if a worker is idle: the time that a
            thread takes to wake up is not queueing.

        Raises:
            InferenceError: OVERLOADED; sets the header retry-after of the response.
        """
        if (arrived := ARRIVED.get()) is not None:
            arrived()
        self.join(caller)
        try:
            expected = self._take(caller, model, deadline)
        except InferenceError:
            self.part(caller)
            raise
        return self._bounds.max_queue_seconds if expected > 0 else None

    def leave(self, model: str, caller: RequestInfo) -> None:
        """Stop counting a request for `model`."""
        self.part(caller)
        with self._lock:
            self.in_hand -= 1
            remaining = self._taken[model] - 1
            if remaining:
                self._taken[model] = remaining
            else:
                del self._taken[model]

    def join(self, caller: RequestInfo) -> None:
        """Count a request or stream of a client; `part` ends that.

        Raises:
            InferenceError: OVERLOADED, as `admit`, if the client has reached its limit.
        """
        max_in_flight, client = self._bounds.max_each_client, caller.client or caller.address
        if max_in_flight is None or not client:
            return
        with self._lock:
            in_flight = self._clients.get(client, 0)
            if in_flight < max_in_flight:
                self._clients[client] = in_flight + 1
                return
        caller.returned[RETRY_AFTER] = "1"
        owner = f"the key {caller.client!r}" if caller.client else "your address"
        message = f"The server has {in_flight} requests or streams of {owner} in flight and takes no more"
        raise InferenceError(ErrorKind.OVERLOADED, f"{message}; try again later")

    def part(self, caller: RequestInfo) -> None:
        """Stop counting a request or stream of a client."""
        client = caller.client or caller.address
        if self._bounds.max_each_client is None or not client:
            return
        with self._lock:
            remaining = self._clients[client] - 1
            if remaining:
                self._clients[client] = remaining
            else:
                del self._clients[client]

    @contextmanager
    def joined(self, caller: RequestInfo) -> Generator[None]:
        """Call `join` on entry and `part` on exit."""
        self.join(caller)
        try:
            yield
        finally:
            self.part(caller)

    def _take(self, caller: RequestInfo, model: str, deadline: float | None) -> float:
        expected_wait = self._expected_wait(model)
        self._raise(caller, self._refusal(model, expected_wait, deadline), expected_wait)
        self.last_admitted = time.monotonic()
        with self._lock:
            self.in_hand += 1
            self._taken[model] = self._taken.get(model, 0) + 1
        return expected_wait

    def _raise(self, caller: RequestInfo, refusal: str, expected_wait: float) -> None:
        if refusal:
            found = self._excess(refusal, expected_wait)
            caller.returned[RETRY_AFTER] = str(found.retry_after)
            raise InferenceError(ErrorKind.OVERLOADED, found.message)

    def _excess(self, refusal: str, expected_wait: float) -> Excess:
        return Excess(message=f"{refusal}; try again later", retry_after=max(1, math.ceil(expected_wait)))

    def _expected_arrivals(self) -> int:
        arriving, now = self._arriving, time.monotonic()
        # They are in the order of their times, so that the first that is not late ends the search.
        while arriving and arriving[first := next(iter(arriving))] < now:
            del arriving[first]
        return len(arriving)

    def _refusal(self, model: str, expected_wait: float, deadline: float | None) -> str:
        bounds = self._bounds
        if self.in_hand >= self._workers + bounds.max_waiting:
            return _full(self.in_hand)
        taken = self._taken.get(model, 0)
        if taken > self._workers and taken >= self._workers + self._bound(model):
            return f"The server has {taken} requests for {model!r} in flight and takes no more of them"
        if bounds.max_queue_seconds is not None and expected_wait > bounds.max_queue_seconds:
            return f"A request would have to wait for about {expected_wait:.3g} s"
        if deadline is not None and expected_wait > deadline - time.monotonic():
            return f"A request would have to wait for about {expected_wait:.3g} s, longer than its timeout"
        return ""

    def _bound(self, model: str) -> int:
        own = self._own_bound(model)
        if own is not None:
            return own
        default = self._bounds.max_waiting_each
        if default is not None:
            return default
        return self._bounds.max_waiting // 2 if self._several() else self._bounds.max_waiting


def _full(requests: int) -> str:
    return f"The server has {requests} requests in flight and takes no more"
