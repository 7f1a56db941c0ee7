"""Several calls of a model made one."""

from collections.abc import Callable, Sequence
from typing import Any

from app.assembly.ray_serve.exchange import Failure, Outcome
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("together",)

_Call = Callable[[Sequence[Any]], Sequence[Any]]


def together(model: _Call, calls: Sequence[Sequence[Any]]) -> Sequence[Outcome]:
    """Answer several calls with one of the model. Where that fails, each alone: only one of them may be at fault."""
    merged = [each for call in calls for each in call]
    outcome = _called(model, merged)
    if isinstance(outcome, Failure):
        return [outcome] if len(calls) == 1 else [_called(model, call) for call in calls]
    answers = iter(outcome)
    return [[next(answers) for _ in call] for call in calls]


def _called(model: _Call, inputs: Sequence[Any]) -> Sequence[Any] | Failure:
    try:
        predictions = model(inputs)
    except InferenceError as error:
        return Failure.of(error)
    except Exception as error:  # noqa: BLE001  whatever a model raises is told to its callers alone
        return Failure(ErrorKind.MODEL_FAILED, f"The model failed: {error}", "")
    if len(predictions) != len(inputs):
        message = f"The model answered {len(predictions)} of {len(inputs)} inputs"
        return Failure(ErrorKind.MODEL_FAILED, message, "")
    return predictions
