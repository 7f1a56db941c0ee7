"""Calls of a model from several requests made one, where that is worth more than it costs."""

import threading
import time
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Generic, TypeVar

from app.engine.interest import JointInterest, current_interest, on_behalf_of
from app.engine.workers import has_company, waiting_elsewhere
from tasks.exchange.response import Prediction
from tasks.task import Model

__all__ = ("BatchingModel",)

InputT = TypeVar("InputT")
PredictionT = TypeVar("PredictionT", bound=Prediction)

_ROOM = 2
"""So many batches' worth of decoded inputs wait at most while their threads do something else."""


class BatchingModel(Generic[InputT, PredictionT]):
    """A model that is called with the inputs of several requests at once. Called like the model itself, from workers.

    The first request that comes gathers others, for a moment at most, and calls the model for all of them. While it
    waits, its thread is another's. A request whose sender has left by then is left out. A batch that fails is tried
    again request by request, so that each fails or succeeds by itself.

    Args:
        model: what is called.
        max_size: inputs of a batch. A request of more is a batch of its own.
        max_delay: seconds that the first request waits for others. One that is alone in the server waits for none.
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
            crowded = self._size > _ROOM * self._max_size
        if crowded:
            # Its place among the workers is kept, so that no more pictures are decoded than will soon be looked at.
            entry.turn.wait()
        elif not entry.turn.is_set():
            with waiting_elsewhere():
                entry.turn.wait()
        if not entry.settled and not entry.alone:
            self._lead(entry)
        return self._model(inputs) if entry.alone else entry.result()

    def _lead(self, entry: "_Entry[InputT, PredictionT]") -> None:
        """Gather a batch, of which `entry` is the first, and call the model."""
        if self._size < self._max_size and has_company():
            with waiting_elsewhere():
                entry.full.wait(max(0.0, entry.came + self._max_delay - time.monotonic()))
        batch = self._taken()
        if not batch:
            return
        inputs = [each for member in batch for each in member.inputs]
        try:
            with on_behalf_of(JointInterest([member.interest for member in batch])):
                shares = _shared_out(self._model(inputs), batch)
        except BaseException as error:  # noqa: BLE001  it belongs to whichever request made the model fail
            # Whatever it is, nobody may be left waiting for an answer that never comes.
            if len(batch) == 1:
                batch[0].settle(error=error)
            else:
                self._dissolve(batch)
            return
        for member, share in zip(batch, shares, strict=True):
            member.settle(share)

    def _taken(self) -> "list[_Entry[InputT, PredictionT]]":
        """The entries of the next batch; another of those that wait gathers the one after it."""
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
        """Have every request call the model by itself."""
        for member in batch:
            member.alone = True
            member.turn.set()


def _shared_out(
    predictions: Sequence[PredictionT], batch: "Sequence[_Entry[Any, PredictionT]]"
) -> Sequence[Sequence[PredictionT]]:
    """What each request of a batch is answered."""
    if len(batch) == 1:
        return [predictions]
    ends = list(accumulate(len(member.inputs) for member in batch))
    if len(predictions) != ends[-1]:
        raise ValueError(f"{len(predictions)} answers to {ends[-1]} inputs")
    return [predictions[end - len(member.inputs) : end] for member, end in zip(batch, ends, strict=True)]


class _Entry(Generic[InputT, PredictionT]):
    """The inputs of one request, and what becomes of them."""

    def __init__(self, inputs: Sequence[InputT]) -> None:
        self.inputs = inputs
        self.interest = current_interest()
        self.came = time.monotonic()
        self.turn = threading.Event()
        """It is to gather a batch, to go alone, or to take its result."""
        self.full = threading.Event()
        """It need not gather any longer."""
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
