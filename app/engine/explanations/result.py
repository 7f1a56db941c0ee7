"""The result of an explained request, and the time that its samples take."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from app.engine.inference_result import InferenceResult
from tasks.inference.limits import Limits

__all__ = ("ExplainedResult", "TimedModel", "explanation_deadline")

ExplanationT = TypeVar("ExplanationT")

_SHARE_OF_SAMPLES = 0.9


class ExplainedResult(msgspec.Struct, Generic[ExplanationT], frozen=True, kw_only=True, eq=False):
    """A result with its explanations.

    Attributes:
        result: the result; its timings include those of the explanations.
        explanations: for each output, for each of its samples, one for each explained image object or row.
        samples: masked copies of images, or copies of rows, that the model processed.
    """

    result: InferenceResult
    explanations: Sequence[Sequence[Sequence[ExplanationT]]]
    samples: int


def explanation_deadline(
    started: float, max_seconds: float | None, limits: Limits, remaining_seconds: float | None
) -> float:
    """Return when the samples of an explanation that started at `started` must end.

    Args:
        started: by `time.monotonic`.
        max_seconds: the request's own limit.
        limits: the server's.
        remaining_seconds: seconds until the deadline of the request.
    """
    share = None if remaining_seconds is None else remaining_seconds * _SHARE_OF_SAMPLES
    budgets = (max_seconds, limits.max_explanation_seconds, share)
    return started + min(seconds for seconds in budgets if seconds is not None)


class TimedModel:
    """Call a model, count its inputs and the time of its calls, and report the inputs."""

    def __init__(
        self, model: Callable[[Sequence[Any]], Sequence[Any]], on_inputs: Callable[[int], None] = lambda _: None
    ) -> None:
        self._model = model
        self._on_inputs = on_inputs
        self.inputs = 0
        self.nanoseconds = 0

    def __call__(self, inputs: Sequence[Any], /) -> Sequence[Any]:
        started = time.perf_counter_ns()
        predictions = self._model(inputs)
        self.nanoseconds += time.perf_counter_ns() - started
        self.inputs += len(inputs)
        self._on_inputs(len(inputs))
        return predictions
