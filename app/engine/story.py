"""The context of one request: everything that is known about it until it is reported."""

import math
import threading
import time
from concurrent.futures import Future
from functools import cached_property

from app.engine.admission import RETRY_AFTER
from app.engine.answered import InferenceResult, Timings
from app.engine.events import InferenceEvent, RequestInfo
from app.engine.ids import event_id
from app.engine.interest import CancellationToken
from app.engine.registry import Registration
from metadata.entry import metadata_values, read_metadata
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.request import InferenceRequest

__all__ = ("RequestContext",)


class RequestContext:
    """The state of one request, from its arrival to its event.

    Args:
        caller: the origin of the request.
        model_name: the requested model, empty if it is not known yet.
        deadline: on the clock of `time.monotonic`; None for no deadline.
        explanation: whether the client requests explanations.

    Attributes:
        samples: masked copies that the model processed for explanations.
        request: the decoded request.
        registration: the model that answers.
        answered: the result so far.
        error: why the request failed.
        interest: its cancellation token.
        kept: completes when the request is recorded; None without recording.
        max_queue_seconds: seconds that it may wait for a worker; None for no limit.
    """

    def __init__(
        self, caller: RequestInfo, model_name: str, deadline: float | None = None, *, explanation: bool = False
    ) -> None:
        self.caller = caller
        self.explanation = explanation
        self.samples = 0
        self.request: InferenceRequest | None = None
        self.registration: Registration | None = None
        self.answered: InferenceResult | None = None
        self.error: InferenceError | None = None
        self.interest = CancellationToken(deadline)
        self.kept: Future[None] | None = None
        self.max_queue_seconds: float | None = None
        self._model_name = model_name
        self._arrived = self._begun = time.perf_counter_ns()
        self._started = time.time_ns()
        self._unfinished = threading.Lock()

    def begin(self) -> None:
        """Set the time at which a worker starts the request."""
        self._begun = time.perf_counter_ns()

    def limit(self, timeout: float) -> None:
        """Set the deadline to `timeout` seconds after arrival, unless it is earlier already.

        Raises:
            InferenceError: DEADLINE_EXCEEDED if the deadline has passed.
        """
        left = timeout - (time.perf_counter_ns() - self._arrived) / 1e9
        self.interest.shorten(time.monotonic() + left)
        if (loss := self.interest.loss) is not None:
            raise loss

    def check_queue_time(self) -> None:
        """Refuse a request that has waited in the queue for too long, before any work is done for it.

        Raises:
            InferenceError: OVERLOADED; sets the header retry-after of the response.
        """
        waited = (self._begun - self._arrived) / 1e9
        if self.max_queue_seconds is not None and waited > self.max_queue_seconds:
            self.caller.returned[RETRY_AFTER] = str(max(1, math.ceil(waited)))
            message = f"The request waited for {waited:.3g} s, longer than the server allows; try again later"
            raise InferenceError(ErrorKind.OVERLOADED, message)

    def conclude(self) -> bool:
        """Mark the request as finished. Return False if it was finished before, by any thread."""
        return self._unfinished.acquire(blocking=False)

    @cached_property
    def event(self) -> InferenceEvent:
        """Return the event of the finished request."""
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
            metadata=[read_metadata(value) for value in metadata_values(self.request)] if self.request else (),
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
