"""Combine several calls of a model into one."""

from collections.abc import Callable, Sequence
from typing import Any

from app.assembly.ray_serve.messages import Outcome, ReplicaFailure
from tasks.inference.error import ErrorKind, InferenceError

__all__ = ("run_batch",)

_Call = Callable[[Sequence[Any]], Sequence[Any]]


def run_batch(model: _Call, calls: Sequence[Sequence[Any]]) -> Sequence[Outcome]:
    """Answer several calls with one call of the model. If it fails, answer each call separately."""
    inputs = [value for call in calls for value in call]
    outcome = _call(model, inputs)
    if isinstance(outcome, ReplicaFailure):
        return [outcome] if len(calls) == 1 else [_call(model, call) for call in calls]
    answers = iter(outcome)
    return [[next(answers) for _ in call] for call in calls]


def _call(model: _Call, inputs: Sequence[Any]) -> Sequence[Any] | ReplicaFailure:
    try:
        predictions = model(inputs)
    except InferenceError as error:
        return ReplicaFailure.from_error(error)
    except Exception as error:  # noqa: BLE001  a model may raise anything; only its callers see it
        return ReplicaFailure(ErrorKind.MODEL_FAILED, f"The model failed: {error}", "")
    if len(predictions) != len(inputs):
        message = f"The model answered {len(predictions)} of {len(inputs)} inputs"
        return ReplicaFailure(ErrorKind.MODEL_FAILED, message, "")
    return predictions
