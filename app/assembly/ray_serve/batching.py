"""Combine several calls of a model into one."""

from collections.abc import Callable, Sequence
from typing import Any

from app.assembly.ray_serve.exchange import Failure, Outcome
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("together",)

_Call = Callable[[Sequence[Any]], Sequence[Any]]


def together(model: _Call, calls: Sequence[Sequence[Any]]) -> Sequence[Outcome]:
    """Answer several calls with one call of the model. If it fails, answer each call separately."""
    merged = [value for call in calls for value in call]
    outcome = _call(model, merged)
    if isinstance(outcome, Failure):
        return [outcome] if len(calls) == 1 else [_call(model, call) for call in calls]
    answers = iter(outcome)
    return [[next(answers) for _ in call] for call in calls]


def _call(model: _Call, inputs: Sequence[Any]) -> Sequence[Any] | Failure:
    try:
        predictions = model(inputs)
    except InferenceError as error:
        return Failure.of(error)
    except Exception as error:  # noqa: BLE001  a model may raise anything; only its callers see it
        return Failure(ErrorKind.MODEL_FAILED, f"The model failed: {error}", "")
    if len(predictions) != len(inputs):
        message = f"The model answered {len(predictions)} of {len(inputs)} inputs"
        return Failure(ErrorKind.MODEL_FAILED, message, "")
    return predictions
