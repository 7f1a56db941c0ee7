"""The interfaces of what receives finished requests: observers, recording and annotators."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol

from app.engine.inference_result import InferenceResult
from app.engine.request_context import RequestContext


class InferenceObserver(Protocol):
    """Receive the event of every inference after it has ended and is recorded. Implementations never block or raise.

    Called from any thread: the worker, the thread of the record sink, or the event loop.
    """

    def observe(self, context: RequestContext, /) -> None: ...


class RecordSink(Protocol):
    """Record inferences before their answers are sent."""

    @property
    def unavailable_reason(self) -> str:
        """Return why nothing can be recorded now, so that every request would fail; empty if recording works."""
        ...

    def record(self, context: RequestContext, /) -> "Future[None] | None":
        """Submit one inference or refusal for recording, without blocking.

        Returns:
            A future that completes when it is recorded, or fails with the `InferenceError` that the client gets instead
            of its answer. None if the answer need not wait.
        """
        ...


class OutputAnnotator(Protocol):
    """Add output parameters to a response. Called in the worker, before the response is encoded; does not raise."""

    def __call__(
        self, context: RequestContext, result: InferenceResult, model_name: str, /
    ) -> Sequence[Mapping[str, object]]:
        """Return parameters for each output of `result`, or nothing. Set headers in `context.response_headers`."""
        ...
