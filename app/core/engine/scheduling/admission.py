"""Admit or reject requests: limits in total, for each model and for each client, and estimated waits."""

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count

import msgspec

from app.core.engine.cancellation import deadline_error
from app.core.engine.request_context import RequestContext
from tasks.inference.error import ErrorKind, InferenceError, invalid

_ARRIVAL_SECONDS = 0.1
"""A body that takes longer to arrive no longer counts: slow clients must not keep others out."""

_MIN_ARRIVALS = 32
"""Bodies that may always arrive at once: with a short queue, small bodies are often read before a worker is free."""

TIMEOUT_HEADER = "x-request-timeout-ms"
"""The header, or key of gRPC metadata, with the client's timeout in milliseconds; gRPC calls have deadlines too."""

MAX_TIMEOUT_SECONDS = 30 * 24 * 3600
"""Longest accepted timeout in seconds; a longer header is rejected, a longer deadline of a gRPC call is cut to it."""


class QueueLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the queue of requests.

    Attributes:
        max_waiting: requests that may wait for a worker.
        max_waiting_each: requests that may wait for one model, unless its settings give a number. By default half of
            `max_waiting` if there is more than one model.
        max_queue_seconds: a request with a longer estimated wait is rejected; None for no limit.
        request_timeout: seconds that a request may take; clients may ask for less. None for no limit.
        max_each_client: requests and streams of one client that may be in flight; None for no limit.
    """

    max_waiting: int = 128
    max_waiting_each: int | None = None
    max_queue_seconds: float | None = None
    request_timeout: float | None = None
    max_each_client: int | None = None


class ClientLimit:
    """Count the requests and streams in flight of each client, a key or else an address; None for no limit."""

    def __init__(self, max_in_flight: int | None) -> None:
        self.max_in_flight = max_in_flight
        self._lock = threading.Lock()
        self._in_flight: dict[str, int] = {}

    def acquire(self, context: RequestContext) -> None:
        """Count a request or stream of a client; `release` ends that.

        Raise OVERLOADED if the client has reached its limit.
        """
        client = context.client or context.address
        if self.max_in_flight is None or not client:
            return
        with self._lock:
            in_flight = self._in_flight.get(client, 0)
            if in_flight < self.max_in_flight:
                self._in_flight[client] = in_flight + 1
                return
        owner = f"the key {context.client!r}" if context.client else "your address"
        raise _overload(f"The server has {in_flight} requests or streams of {owner} in flight and takes no more")

    def release(self, context: RequestContext) -> None:
        """Stop counting a request or stream of a client."""
        client = context.client or context.address
        if self.max_in_flight is not None and client:
            with self._lock:
                self._in_flight[client] -= 1
                if not self._in_flight[client]:
                    del self._in_flight[client]

    @contextmanager
    def slot(self, context: RequestContext) -> Generator[None]:
        """Call `acquire` on entry and `release` on exit."""
        self.acquire(context)
        try:
            yield
        finally:
            self.release(context)


class Admission:
    """Admit requests within limits, and count the requests in flight.

    Args:
        workers: number of requests that are answered at once.
        queue_limits: limits on requests that wait.
        model_limit: return the `max_waiting` of a model's settings, None if they have none.
        multi_model: return whether there is more than one model.
        expected_wait: return the seconds that one more request for a model is likely to wait.
        clients: the limit on each client, if several objects share it; by default from `queue_limits`.
        unit: name of the requests in messages.
    """

    def __init__(
        self,
        workers: int,
        queue_limits: QueueLimits,
        model_limit: Callable[[str], int | None],
        multi_model: Callable[[], bool],
        expected_wait: Callable[[str], float],
        clients: ClientLimit | None = None,
        unit: str = "requests",
    ) -> None:
        self._workers = workers
        self._queue_limits = queue_limits
        self._model_limit = model_limit
        self._multi_model = multi_model
        self._expected_wait = expected_wait
        self.clients = clients or ClientLimit(queue_limits.max_each_client)
        self._unit = unit
        self._lock = threading.Lock()
        self._in_flight_by_model: defaultdict[str, int] = defaultdict(int)
        self._arriving: dict[int, float] = {}
        self._arrival_ids = count()
        self.in_flight = 0

    @property
    def waiting(self) -> int:
        """Return the number of requests beyond those that the workers can run."""
        return max(0, self.in_flight - self._workers)

    def has_idle_worker(self) -> bool:
        """Return whether a worker is left for a request after all that run, wait or arrive."""
        return self.in_flight + len(self._arriving) < self._workers

    @contextmanager
    def arriving(self) -> Generator[None]:
        """Count a request whose body arrives, while entered in the event loop."""
        arrival_id = next(self._arrival_ids)
        self._arriving[arrival_id] = time.monotonic() + _ARRIVAL_SECONDS
        try:
            yield
        finally:
            self._arriving.pop(arrival_id, None)

    def overload(self, model: str | None) -> InferenceError | None:
        """Return the error of a request that would be rejected after its body has arrived; None if it is admitted.

        Without a model, only the limits that are the same for every model are checked.
        """
        expected = self.in_flight + self._expected_arrivals()
        max_in_flight = self._workers + self._queue_limits.max_waiting
        if self.in_flight < max_in_flight and expected >= max(max_in_flight, _MIN_ARRIVALS):
            return _overload(self._full_message(expected))
        if model is None:
            return _overload(self._full_message(self.in_flight)) if self.in_flight >= max_in_flight else None
        return self._rejection(model, self._limited_wait(model))

    def acquire(self, context: RequestContext, model: str, *, until_deadline: bool = False) -> None:
        """Count a request for `model` as in flight; `release` ends that. Set its deadline and `max_queue_seconds`.

        It has no `max_queue_seconds` if a worker is idle: the time that a thread takes to wake up is not queueing. With
        `until_deadline`, it may wait although its deadline is likely to pass. Raise INVALID_REQUEST, with the header as
        path, for an invalid timeout; DEADLINE_EXCEEDED for a timeout that is not positive; OVERLOADED.
        """
        timeout, max_seconds = context.timeout, self._queue_limits.request_timeout
        if timeout is not None:
            if timeout <= 0:
                raise deadline_error()
            if not timeout <= MAX_TIMEOUT_SECONDS:
                raise invalid("Expected a number of milliseconds, from 0 to 30 days", TIMEOUT_HEADER)
            max_seconds = min(timeout, max_seconds or math.inf)
        if max_seconds is not None:
            context.deadline = time.monotonic() + max_seconds
        wait: float | None = 0.0
        if self.clients.max_in_flight is not None:
            self.clients.acquire(context)
        if self.in_flight >= self._workers:
            deadline = None if until_deadline else context.deadline
            wait = self._limited_wait(model, deadline)
            if (error := self._rejection(model, wait, deadline)) is not None:
                self.clients.release(context)
                raise error
        with self._lock:
            self.in_flight += 1
            self._in_flight_by_model[model] += 1
        context.max_queue_seconds = self._queue_limits.max_queue_seconds if wait else None

    def release(self, model: str, context: RequestContext) -> None:
        """Stop counting a request for `model`."""
        if self.clients.max_in_flight is not None:
            self.clients.release(context)
        with self._lock:
            self.in_flight -= 1
            self._in_flight_by_model[model] -= 1

    def _expected_arrivals(self) -> int:
        arriving, now = self._arriving, time.monotonic()
        # Entries are in order of time: stop at the first one that is not late.
        while arriving and arriving[first := next(iter(arriving))] < now:
            del arriving[first]
        return len(arriving)

    def _limited_wait(self, model: str, deadline: float | None = None) -> float | None:
        """Return the seconds that a request is likely to wait; None if neither a limit nor its deadline needs them."""
        is_limited = self._queue_limits.max_queue_seconds is not None or deadline is not None
        return self._expected_wait(model) if is_limited else None

    def _rejection(self, model: str, wait: float | None, deadline: float | None = None) -> InferenceError | None:
        """Return the error of a request that is rejected now; None if it is admitted. `wait` is `_limited_wait`."""
        limits, in_flight = self._queue_limits, self._in_flight_by_model.get(model, 0)
        if self.in_flight >= self._workers + limits.max_waiting:
            reason = self._full_message(self.in_flight)
        elif in_flight > self._workers and in_flight >= self._workers + self._max_waiting(model):
            # A protocol may name the model in the body, which is not decoded yet.
            kind = f"for {model!r}" if model else "that name the model in their body"
            reason = f"The server has {in_flight} requests {kind} in flight and takes no more of them"
        elif wait is None:
            return None
        elif limits.max_queue_seconds is not None and wait > limits.max_queue_seconds:
            reason = f"A request would have to wait for about {wait:.3g} s"
        elif deadline is not None and wait > deadline - time.monotonic():
            reason = f"A request would have to wait for about {wait:.3g} s, longer than its timeout"
        else:
            return None
        return _overload(reason, self._expected_wait(model) if wait is None else wait)

    def _full_message(self, count: int) -> str:
        return f"The server has {count} {self._unit} in flight and takes no more"

    def _max_waiting(self, model: str) -> int:
        own_limit = self._model_limit(model)
        if own_limit is not None:
            return own_limit
        limits = self._queue_limits
        if limits.max_waiting_each is not None:
            return limits.max_waiting_each
        return limits.max_waiting // 2 if self._multi_model() else limits.max_waiting


def _overload(reason: str, expected_wait: float = 0.0) -> InferenceError:
    retry_after = max(1, math.ceil(expected_wait))
    return InferenceError(ErrorKind.OVERLOADED, f"{reason}; try again later", retry_after=retry_after)
