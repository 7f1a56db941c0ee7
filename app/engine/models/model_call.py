"""Call models, and convert their exceptions."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from app.engine.cancellation import raise_if_cancelled
from app.engine.error_text import error_text
from tasks.inference.error import ErrorKind, InferenceError

__all__ = ("call_model",)

InputT = TypeVar("InputT")
ResultT = TypeVar("ResultT")


def call_model(model: Callable[[Sequence[InputT]], Sequence[ResultT]], items: Sequence[InputT]) -> Sequence[ResultT]:
    """Return the result of `model` for each of `items`.

    Raises:
        InferenceError: MODEL_FAILED if the model fails, or answers another number of inputs; CANCELLED or
            DEADLINE_EXCEEDED if the request has ended.
    """
    raise_if_cancelled()
    try:
        results = model(items)
    except InferenceError:
        raise
    except BaseException as error:
        # `SystemExit` and `KeyboardInterrupt` from model code must not stop the worker.
        raise InferenceError(ErrorKind.MODEL_FAILED, f"The model failed: {error_text(error)}") from error
    if len(results) != len(items):
        message = f"The model answered {len(results)} of {len(items)} inputs"
        raise InferenceError(ErrorKind.MODEL_FAILED, message)
    return results
