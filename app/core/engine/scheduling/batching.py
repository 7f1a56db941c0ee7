"""Dynamic batching: combine the inputs of several requests into one call of the model."""

import threading
import time
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any

from app.core.engine.cancellation import CombinedToken, cancellation_scope, current_token
from app.core.engine.models.steps import Runner
from app.core.engine.scheduling.thread_pool import is_contended, release_worker

_MAX_WAITING_BATCHES = 2
"""Number of full batches that may wait while their workers take other jobs."""


class BatchingRunner:
    """Run a model on the inputs of several requests at once.

    The first request leads: it waits up to `max_delay` for others, and calls the model for all of them. While a request
    waits, its worker takes another job. Cancelled requests are left out. If a batch fails, each of its requests calls
    the model separately, so that one bad request fails alone.

    Args:
        runner: runs the model on one batch.
        max_size: maximum number of inputs in a batch. A larger request is a batch of its own.
        max_delay: seconds that the first request waits for others; it does not wait if no other job runs or waits.
    """

    def __init__(self, runner: Runner, max_size: int, max_delay: float) -> None:
        self._run = runner
        self._max_size = max_size
        self._max_delay = max_delay
        self._lock = threading.Lock()
        self._waiting: deque[_PendingCall] = deque()
        self._waiting_inputs = 0
        self._leader: _PendingCall | None = None

    def __call__(self, inputs: Sequence[Any], /) -> Sequence[Any]:
        call = _PendingCall(inputs)
        with self._lock:
            self._waiting.append(call)
            self._waiting_inputs += len(inputs)
            if self._leader is None:
                self._leader = call
                call.ready.set()
            elif self._waiting_inputs >= self._max_size:
                self._leader.full.set()
            backlogged = self._waiting_inputs > _MAX_WAITING_BATCHES * self._max_size
        if backlogged:
            # Keep the worker, so that no more images are decoded than the model will need soon.
            call.ready.wait()
        elif not call.ready.is_set():
            with release_worker():
                call.ready.wait()
        if not call.is_done and not call.unbatched:
            self._lead(call)
        return self._run(inputs) if call.unbatched else call.result()

    def _lead(self, leader: "_PendingCall") -> None:
        """Collect a batch that starts with `leader`, and call the model."""
        if self._waiting_inputs < self._max_size and is_contended():
            with release_worker():
                leader.full.wait(max(0.0, leader.enqueued_at + self._max_delay - time.monotonic()))
        batch = self._take_batch()
        if not batch:
            return
        inputs = [value for call in batch for value in call.inputs]
        try:
            with cancellation_scope(CombinedToken([call.token for call in batch])):
                predictions = self._run(inputs)
            if len(batch) > 1 and len(predictions) != len(inputs):
                raise ValueError(f"{len(predictions)} predictions for {len(inputs)} inputs")
        except BaseException as error:  # noqa: BLE001  it belongs to the request that made the model fail
            # After any exception, every waiting request must get an answer.
            if len(batch) == 1:
                batch[0].set_result(error=error)
            else:
                for call in batch:
                    call.unbatched = True
                    call.ready.set()
            return
        if len(batch) == 1:
            batch[0].set_result(predictions)
            return
        remaining = iter(predictions)
        for call in batch:
            call.set_result(list(islice(remaining, len(call.inputs))))

    def _take_batch(self) -> "list[_PendingCall]":
        """Return the calls of the next batch, and make the next waiting call the leader of the batch after it."""
        batch: list[_PendingCall] = []
        size = 0
        with self._lock:
            while self._waiting and (not batch or size + len(self._waiting[0].inputs) <= self._max_size):
                call = self._waiting.popleft()
                self._waiting_inputs -= len(call.inputs)
                if call.token is not None and (error := call.token.cancellation) is not None:
                    call.set_result(error=error)
                    continue
                size += len(call.inputs)
                batch.append(call)
            self._leader = self._waiting[0] if self._waiting else None
            if self._leader is not None:
                self._leader.ready.set()
        return batch


class _PendingCall:
    """The inputs of one request, and their predictions or error."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        self.inputs = inputs
        self.token = current_token()
        self.enqueued_at = time.monotonic()
        self.ready = threading.Event()
        """Set when the request must lead a batch, call the model alone, or take its result."""
        self.full = threading.Event()
        """Set when the batch is full."""
        self.unbatched = False
        self.is_done = False
        self._predictions: Sequence[Any] = ()
        self._error: BaseException | None = None

    def set_result(self, predictions: Sequence[Any] = (), error: BaseException | None = None) -> None:
        self._predictions, self._error = predictions, error
        self.is_done = True
        self.ready.set()

    def result(self) -> Sequence[Any]:
        if self._error is not None:
            raise self._error
        return self._predictions
