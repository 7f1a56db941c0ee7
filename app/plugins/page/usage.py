"""Count the requests of each model for the view Models."""

import threading
from collections.abc import Callable

import msgspec

from app.core.engine.request_context import RequestContext


class ModelUsage(msgspec.Struct, kw_only=True):
    """The use of one model, all versions together, since the start of the server.

    Attributes:
        requests: finished requests, errors included.
        latency: mean latency of requests without an error in milliseconds; 0 without any.
    """

    requests: int = 0
    errors: int = 0
    latency: float = 0.0


class UsageObserver:
    """Counts finished requests. `has_model` says whether a model exists: clients may invent names."""

    def __init__(self, has_model: Callable[[str], bool]) -> None:
        self._has_model = has_model
        self._lock = threading.Lock()
        self._usage: dict[str, ModelUsage] = {}

    def observe(self, context: RequestContext, /) -> None:
        # Explanations take hundreds of times as long.
        if context.explanation or not self._has_model(context.model_name):
            return
        with self._lock:
            usage = self._usage.setdefault(context.model_name, ModelUsage())
            usage.requests += context.count
            if context.outcome is not None:
                usage.errors += context.count
            else:
                weight = context.count / (usage.requests - usage.errors)
                usage.latency += (context.total / 1e6 - usage.latency) * weight

    def usage_of(self, name: str) -> ModelUsage:
        """Return a copy of the counts of a model."""
        with self._lock:
            return msgspec.structs.replace(self._usage.get(name) or ModelUsage())
