"""What happened to one request so far, to be told when it ends."""

import threading
import time
from concurrent.futures import Future
from functools import cached_property

from app.engine.answered import Answered, Timings
from app.engine.events import Caller, InferenceEvent
from app.engine.ids import event_id
from app.engine.interest import Interest
from app.engine.registry import Registration
from metadata.entry import PARAMETER, read_metadata
from tasks.exchange.error import InferenceError
from tasks.exchange.request import InferenceRequest

__all__ = ("Story",)


class Story:
    """Begins when a request arrives.

    Args:
        caller: where it comes from.
        model_name: the model it is addressed to, as far as that is known.
        deadline: until when its sender waits, on the clock of `time.monotonic`.
        explanation: whether it asks for reasons beside the answer.
    """

    def __init__(
        self, caller: Caller, model_name: str, deadline: float | None = None, *, explanation: bool = False
    ) -> None:
        self.caller = caller
        self.explanation = explanation
        self.samples = 0
        self.request: InferenceRequest | None = None
        self.registration: Registration | None = None
        self.answered: Answered | None = None
        self.error: InferenceError | None = None
        self.interest = Interest(deadline)
        self.kept: Future[None] | None = None
        self._model_name = model_name
        self._arrived = self._begun = time.perf_counter_ns()
        self._started = time.time_ns()
        self._untold = threading.Lock()

    def begin(self) -> None:
        """A worker has taken the request up."""
        self._begun = time.perf_counter_ns()

    def conclude(self) -> bool:
        """It is to be told now: whether that has not been done before, by any thread."""
        return self._untold.acquire(blocking=False)

    @cached_property
    def event(self) -> InferenceEvent:
        """The whole story, once it has ended."""
        tensors = self.request.inputs if self.request else ()
        answered = self.answered
        return InferenceEvent(
            caller=self.caller,
            model_name=self.request.model_name if self.request else self._model_name,
            model_version=self.registration.source.version if self.registration else "",
            outcome=self.error.kind if self.error else None,
            error=str(self.error) if self.error else "",
            batch_size=answered.batch_size if answered else 0,
            explanation=self.explanation,
            samples=self.samples,
            queue=self._begun - self._arrived,
            total=time.perf_counter_ns() - self._arrived,
            timings=answered.timings if answered else Timings(),
            metadata=[read_metadata(each.parameters[PARAMETER]) for each in tensors if PARAMETER in each.parameters],
            id=event_id(),
            arrived=self._arrived,
            started=self._started,
            task_type=self._task_type(),
            request=self.request,
            answered=answered,
        )

    def _task_type(self) -> str:
        servable = self.registration.servable if self.registration else None
        return servable.description.task_type if servable else ""
