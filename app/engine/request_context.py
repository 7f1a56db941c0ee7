"""The context of one request: everything that is known about it until it is reported."""

import math
import threading
import time
from concurrent.futures import Future
from functools import cached_property

from app.engine.admission import RETRY_AFTER
from app.engine.cancellation import CancellationToken
from app.engine.events import InferenceEvent, RequestInfo
from app.engine.ids import event_id
from app.engine.inference_result import InferenceResult, Timings
from app.engine.registry import Registration
from metadata.entry import metadata_values, read_metadata
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.request import InferenceRequest

__all__ = ("RequestContext",)


class RequestContext:
    """The state of one request, from its arrival to its event.

    Args:
        info: the origin of the request.
        model_name: the requested model, empty if it is not known yet.
        deadline: on the clock of `time.monotonic`; None for no deadline.
        explanation: whether the client requests explanations.

    Attributes:
        explanation_samples: masked copies that the model processed for explanations.
        request: the decoded request.
        registration: the model that answers.
        result: the result so far.
        error: why the request failed.
        token: its cancellation token.
        recorded: completes when the request is recorded; None without recording.
        max_queue_seconds: seconds that it may wait for a worker; None for no limit.
    """

    def __init__(
        self, info: RequestInfo, model_name: str, deadline: float | None = None, *, explanation: bool = False
    ) -> None:
        self.info = info
        self.explanation = explanation
        self.explanation_samples = 0
        self.request: InferenceRequest | None = None
        self.registration: Registration | None = None
        self.result: InferenceResult | None = None
        self.error: InferenceError | None = None
        self.token = CancellationToken(deadline)
        self.recorded: Future[None] | None = None
        self.max_queue_seconds: float | None = None
        self._model_name = model_name
        self._arrived = self._work_started = time.perf_counter_ns()
        self._timestamp = time.time_ns()
        self._finish_lock = threading.Lock()

    def start(self) -> None:
        """Set the time at which a worker starts the request."""
        self._work_started = time.perf_counter_ns()

    def set_timeout(self, timeout: float) -> None:
        """Set the deadline to `timeout` seconds after arrival, unless it is earlier already.

        Raises:
            InferenceError: DEADLINE_EXCEEDED if the deadline has passed.
        """
        remaining = timeout - (time.perf_counter_ns() - self._arrived) / 1e9
        self.token.shorten(time.monotonic() + remaining)
        if (error := self.token.error) is not None:
            raise error

    def check_queue_time(self) -> None:
        """Refuse a request that has waited in the queue for too long, before any work is done for it.

        Raises:
            InferenceError: OVERLOADED; sets the header retry-after of the response.
        """
        waited = (self._work_started - self._arrived) / 1e9
        if self.max_queue_seconds is not None and waited > self.max_queue_seconds:
            self.info.response_headers[RETRY_AFTER] = str(max(1, math.ceil(waited)))
            message = f"The request waited for {waited:.3g} s, longer than the server allows; try again later"
            raise InferenceError(ErrorKind.OVERLOADED, message)

    def finish(self) -> bool:
        """Mark the request as finished. Return False if it was finished before, by any thread."""
        return self._finish_lock.acquire(blocking=False)

    @cached_property
    def event(self) -> InferenceEvent:
        """Return the event of the finished request."""
        result = self.result
        return InferenceEvent(
            info=self.info,
            model_name=self.request.model_name if self.request else self._model_name,
            model_version=self.registration.source.version if self.registration else "",
            outcome=self.error.kind if self.error else None,
            error=str(self.error) if self.error else "",
            batch_size=result.batch_size if result else 0,
            explanation=self.explanation,
            explanation_samples=self.explanation_samples,
            queue=self._work_started - self._arrived,
            total=time.perf_counter_ns() - self._arrived,
            timings=result.timings if result else Timings(),
            metadata=[read_metadata(value) for value in metadata_values(self.request)] if self.request else (),
            id=event_id(),
            arrived=self._arrived,
            timestamp=self._timestamp,
            task_type=self._task_type(),
            request=self.request,
            result=result,
        )

    def _task_type(self) -> str:
        servable = self.registration.servable if self.registration else None
        return servable.description.task_type if servable else ""
