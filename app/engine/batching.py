"""Dynamic batching: combine the inputs of several requests into one call of the model."""

import threading
import time
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Generic, TypeVar

from app.engine.interest import CombinedToken, current_interest, on_behalf_of
from app.engine.workers import has_company, waiting_elsewhere
from tasks.exchange.response import Prediction
from tasks.task import Model

__all__ = ("BatchingModel",)

InputT = TypeVar("InputT")
PredictionT = TypeVar("PredictionT", bound=Prediction)

_MAX_WAITING_BATCHES = 2
"""Decoded inputs that may wait while their workers take other jobs, in batches."""


class BatchingModel(Generic[InputT, PredictionT]):
    """Call a model with the inputs of several requests at once. Workers call it like the model itself.

    The first request leads: it waits up to `max_delay` for others, and calls the model for all of them. While a request
    waits, its worker takes another job. Cancelled requests are left out. If a batch fails, each of its requests calls
    the model separately, so that one bad request fails alone.

    Args:
        model: the model to call.
        max_size: maximum number of inputs in a batch. A larger request is a batch of its own.
        max_delay: seconds that the first request waits for others; it does not wait if no other job runs or waits.
    """

    def __init__(self, model: Model[InputT, PredictionT], max_size: int, max_delay: float) -> None:
        self._model = model
        self._max_size = max_size
        self._max_delay = max_delay
        self._lock = threading.Lock()
        self._waiting: deque[_Entry[InputT, PredictionT]] = deque()
        self._size = 0
        self._gathering: _Entry[InputT, PredictionT] | None = None

    def __call__(self, inputs: Sequence[InputT], /) -> Sequence[PredictionT]:
        entry: _Entry[InputT, PredictionT] = _Entry(inputs)
        with self._lock:
            self._waiting.append(entry)
            self._size += len(inputs)
            if self._gathering is None:
                self._gathering = entry
                entry.turn.set()
            elif self._size >= self._max_size:
                self._gathering.full.set()
            crowded = self._size > _MAX_WAITING_BATCHES * self._max_size
        if crowded:
            # Keep the worker, so that no more images are decoded than the model will need soon.
            entry.turn.wait()
        elif not entry.turn.is_set():
            with waiting_elsewhere():
                entry.turn.wait()
        if not entry.settled and not entry.alone:
            self._lead(entry)
        return self._model(inputs) if entry.alone else entry.result()

    def _lead(self, entry: "_Entry[InputT, PredictionT]") -> None:
        """Collect a batch that starts with `entry`, and call the model."""
        if self._size < self._max_size and has_company():
            with waiting_elsewhere():
                entry.full.wait(max(0.0, entry.came + self._max_delay - time.monotonic()))
        batch = self._taken()
        if not batch:
            return
        inputs = [value for member in batch for value in member.inputs]
        try:
            with on_behalf_of(CombinedToken([member.interest for member in batch])):
                shares = _shared_out(self._model(inputs), batch)
        except BaseException as error:  # noqa: BLE001  it belongs to the request that made the model fail
            # After any exception, every waiting request must get an answer.
            if len(batch) == 1:
                batch[0].settle(error=error)
            else:
                self._dissolve(batch)
            return
        for member, share in zip(batch, shares, strict=True):
            member.settle(share)

    def _taken(self) -> "list[_Entry[InputT, PredictionT]]":
        """Return the entries of the next batch, and make the next waiting entry the leader of the batch after it."""
        batch: list[_Entry[InputT, PredictionT]] = []
        size = 0
        with self._lock:
            while self._waiting and (not batch or size + len(self._waiting[0].inputs) <= self._max_size):
                entry = self._waiting.popleft()
                self._size -= len(entry.inputs)
                if entry.interest is not None and (loss := entry.interest.loss) is not None:
                    entry.settle(error=loss)
                    continue
                size += len(entry.inputs)
                batch.append(entry)
            self._gathering = self._waiting[0] if self._waiting else None
            if self._gathering is not None:
                self._gathering.turn.set()
        return batch

    @staticmethod
    def _dissolve(batch: "Sequence[_Entry[InputT, PredictionT]]") -> None:
        """Make every request call the model separately."""
        for member in batch:
            member.alone = True
            member.turn.set()


def _shared_out(
    predictions: Sequence[PredictionT], batch: "Sequence[_Entry[Any, PredictionT]]"
) -> Sequence[Sequence[PredictionT]]:
    """Return the predictions of each request of a batch."""
    if len(batch) == 1:
        return [predictions]
    ends = list(accumulate(len(member.inputs) for member in batch))
    if len(predictions) != ends[-1]:
        raise ValueError(f"{len(predictions)} predictions for {ends[-1]} inputs")
    return [predictions[end - len(member.inputs) : end] for member, end in zip(batch, ends, strict=True)]


class _Entry(Generic[InputT, PredictionT]):
    """The inputs of one request, and their predictions or error."""

    def __init__(self, inputs: Sequence[InputT]) -> None:
        self.inputs = inputs
        self.interest = current_interest()
        self.came = time.monotonic()
        self.turn = threading.Event()
        """Set when the request must lead a batch, call the model alone, or take its result."""
        self.full = threading.Event()
        """Set when the batch is full."""
        self.alone = False
        self.settled = False
        self._predictions: Sequence[PredictionT] = ()
        self._error: BaseException | None = None

    def settle(self, predictions: Sequence[PredictionT] = (), error: BaseException | None = None) -> None:
        self._predictions, self._error = predictions, error
        self.settled = True
        self.turn.set()

    def result(self) -> Sequence[PredictionT]:
        if self._error is not None:
            raise self._error
        return self._predictions
