"""Combine several calls of a model into one."""

from collections.abc import Callable, Sequence
from typing import Any

from app.engine.models.servable import call_model
from app.runtimes.remote import Failure, LoadFailure
from tasks.inference.error import InferenceError

Outcome = Sequence[Any] | Failure | LoadFailure
"""A prediction for each input, or the error."""


def run_batch(
    model: Callable[[Sequence[Any]], Sequence[Any]], calls: Sequence[Sequence[Any]]
) -> Sequence[Sequence[Any] | Failure]:
    """Answer several calls with one call of the model. If it fails, answer each call separately."""
    try:
        answers = iter(call_model(model, [value for call in calls for value in call]))
    except InferenceError as error:
        if len(calls) == 1:
            return [Failure.from_error(error)]
        return [run_batch(model, [call])[0] for call in calls]
    return [[next(answers) for _ in call] for call in calls]
