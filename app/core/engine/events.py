"""Pass finished requests to observers, recording and annotators.

Observers run in batches: code that runs for many requests at once stays in the processor's caches.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Protocol

from app.core.engine.request_context import RequestContext
from tasks.inference.response import InferenceResult

_FLUSH_SECONDS = 0.2
_MAX_PENDING = 64

_logger = logging.getLogger(__name__)


class InferenceObserver(Protocol):
    """Receive every inference after it has ended and is recorded. Implementations never block or raise.

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
        """Submit one inference or rejection for recording, without blocking.

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


class BatchedObservers:
    """Pass finished requests to observers: to some at once, to others a few times a second.

    Requests are delayed only while `flushing` is entered, and only if they succeed. Delayed requests keep no inputs and
    no predictions.
    """

    def __init__(self) -> None:
        self._immediate_observers: list[InferenceObserver] = []
        self._observers: list[InferenceObserver] = []
        self._pending: deque[RequestContext] = deque()
        self._is_delayed = False
        self._lock = threading.Lock()

    def attach(
        self, immediate_observers: Sequence[InferenceObserver] = (), observers: Sequence[InferenceObserver] = ()
    ) -> None:
        """Pass every request to `immediate_observers` at once, and to `observers` without its payload."""
        self._immediate_observers += immediate_observers
        self._observers += observers

    def add(self, context: RequestContext) -> None:
        """Add a finished request."""
        _notify(self._immediate_observers, context)
        may_wait = self._is_delayed and context.outcome is None and len(self._pending) < _MAX_PENDING - 1
        is_delayed = may_wait and context.drop_payload()
        self._pending.append(context)
        if not is_delayed:
            self.flush()

    def flush(self) -> None:
        """Pass on all requests now. Call this before reading what the observers count."""
        # The lock keeps the order of the log lines.
        with self._lock:
            while self._pending:
                _notify(self._observers, self._pending.popleft())

    @asynccontextmanager
    async def flushing(self) -> AsyncGenerator[None]:
        """While entered, pass requests on in batches."""
        self._is_delayed = True
        task = asyncio.create_task(self._flush_periodically())
        try:
            yield
        finally:
            self._is_delayed = False
            task.cancel()
            self.flush()

    async def _flush_periodically(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            self.flush()


def _notify(observers: Sequence[InferenceObserver], context: RequestContext) -> None:
    """Call observers; log their failures."""
    for observer in observers:
        try:
            observer.observe(context)
        except Exception:
            _logger.exception("observer failed")
