"""Answer a request with rows of numbers, and explain each row."""

import time
from collections.abc import Callable

import msgspec

from app.engine.explanations.result import ExplainedResult, TimedModel, explanation_deadline
from app.engine.models.servable import Servable
from tasks.inference.limits import Limits, too_large
from tasks.inference.parameters import read_parameters
from tasks.inference.request import InferenceRequest
from tasks.row_importance import RowExplanationParameters, RowImportance, explain_rows, order_cost
from tasks.saliency.explanation import DEFAULT_SAMPLES

__all__ = ("explain_rows_of_request",)


def explain_rows_of_request(
    servable: Servable,
    request: InferenceRequest,
    limits: Limits,
    should_continue: Callable[[], bool],
    remaining_seconds: float | None = None,
) -> ExplainedResult[RowImportance]:
    """Answer a request to a TENSOR model, and explain each row. The arguments are those of `explain_request`.

    Raises:
        InferenceError: as `Servable.row_target`; INVALID_REQUEST for invalid explanation parameters; TOO_LARGE for more
            copies of rows than one request may take.
    """
    started = time.monotonic()
    parameters = read_parameters(RowExplanationParameters, request.parameters)
    result, target = servable.row_target(request, limits)
    deadline = explanation_deadline(started, parameters.max_seconds, limits, remaining_seconds)
    model = TimedModel(target.model)
    importances = explain_rows(
        msgspec.structs.replace(target, model=model),
        parameters,
        _order_count(order_cost(target), target.row_count, parameters, limits),
        lambda: should_continue() and time.monotonic() < deadline,
    )
    return ExplainedResult(
        result=msgspec.structs.replace(result, model_ns=result.model_ns + model.nanoseconds),
        explanations=[[importances]],
        samples=sum(importance.samples for importance in importances),
    )


def _order_count(cost: int, row_count: int, parameters: RowExplanationParameters, limits: Limits) -> int:
    """Return the number of orders for the requested samples. The default is reduced to fit the limit."""
    if cost <= 0:
        return 1
    max_samples = limits.max_explanation_samples
    if parameters.samples is None:
        orders = max(1, min(DEFAULT_SAMPLES * row_count, max_samples) // cost)
    else:
        orders = -(-parameters.samples * row_count // cost)
    if orders * cost > max_samples:
        raise too_large(max_samples, "copies of rows in one request", orders * cost, "parameters.samples")
    return orders
