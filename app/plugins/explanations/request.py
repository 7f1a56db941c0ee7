"""Answer a request, and explain the answers, in a lane of their own."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from app.core.engine.engine import Engine
from app.core.engine.models.servable import Servable
from app.core.engine.models.steps import Runner
from app.core.engine.request_context import RequestContext
from app.core.hooks import Host, Parts
from app.plugins.explanations.explainer import check_explained, explainers
from app.plugins.explanations.pixels import (
    DEFAULT_SAMPLES,
    Explanation,
    ExplanationMethod,
    ExplanationParameters,
    ExplanationTarget,
    explain_target,
    sample_count,
)
from app.plugins.explanations.rows import RowExplanationParameters, RowTarget, explain_rows, order_cost
from app.plugins.explanations.settings import ExplanationSettings
from tasks.inference.error import ErrorKind, InferenceError, invalid
from tasks.inference.limits import Limits, too_large
from tasks.inference.request import InferenceRequest, read_parameters
from tasks.inference.response import InferenceResponse, InferenceResult
from tasks.task import ExplainableTask, SelfExplainingModel

WireT = TypeVar("WireT")

Explanations = Sequence[Any]
"""For each sample of a response: one explanation for each explained prediction or row, or the one of a model that
explains itself."""

_SHARE_OF_SAMPLES = 0.9
_PARAMETERS = {"numbers": RowExplanationParameters, "pixels": ExplanationParameters}


class ExplainedResult(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A result, whose timings include its explanations.

    `samples` counts the masked copies of images, or the copies of rows, that the model processed.
    """

    result: InferenceResult
    explanations: Explanations
    samples: int


def start(host: Host) -> Parts:
    """Create the lane of explanations. Return the view of the page, which gets what explains each model."""
    host.engine.lane("explanation", host.settings.of(ExplanationSettings).explain_workers)
    return Parts(views={"explain": lambda: explainers(host.engine.registry)})


async def explain(
    engine: Engine,
    context: RequestContext,
    model_name: str,
    decode: Callable[[], InferenceRequest],
    encode: Callable[[InferenceResponse, Explanations], WireT],
) -> WireT:
    """Answer one request, and explain the answer.

    Explanations have their own workers and queue. They end early if the server stops or the client disconnects.
    `Engine.handle` describes the arguments. The request has the parameters of the explanation, and `encode` gets the
    explanations, the highest score first. Raise InferenceError for every failure; UNSUPPORTED for a task that cannot be
    explained, OVERLOADED if too many explanations wait.
    """
    context.explanation = True

    def should_continue() -> bool:
        return not engine.draining and context.cancellation is None

    def answer(servable: Servable, request: InferenceRequest) -> tuple[InferenceResult, Explanations]:
        explained = explain_request(servable, request, engine.limits, should_continue, context.remaining)
        context.explanation_samples = explained.samples
        return explained.result, explained.explanations

    return await engine.handle(context, model_name, decode, encode, engine.lane("explanation"), answer)


def explain_request(
    servable: Servable,
    request: InferenceRequest,
    limits: Limits,
    should_continue: Callable[[], bool],
    remaining_seconds: float | None = None,
    on_samples: Callable[[int, int], None] = lambda _, __: None,
) -> ExplainedResult:
    """Answer every input of `request`, and explain the answers by the method of the model.

    The samples get most of the `remaining_seconds` until the deadline, divided evenly among the remaining images.
    When `should_continue` returns False, the explanations use the samples taken so far. `on_samples` gets the
    number of copies that the model has just processed, and that of all. A model that explains itself ignores the time.

    Raise InferenceError as `check_explained` and `Servable.predict`; INVALID_REQUEST for invalid explanation
    parameters; TOO_LARGE for more samples than one request may take.
    """
    explainer = check_explained(servable, request.model_name)
    if explainer == "model":
        return _explain_by_model(servable, request, limits)
    started = time.monotonic()
    parameters: Any = read_parameters(_PARAMETERS[explainer], request.parameters)
    share = None if remaining_seconds is None else remaining_seconds * _SHARE_OF_SAMPLES
    budgets = (parameters.max_seconds, limits.max_explanation_seconds, share)
    end = started + min(seconds for seconds in budgets if seconds is not None)

    def before(until: float) -> Callable[[], bool]:
        return lambda: should_continue() and time.monotonic() < until

    if explainer == "numbers":
        return _explain_rows(servable, request, limits, parameters, before(end))
    label, max_objects = parameters.label, parameters.max_objects
    result, targets = explanation_targets(servable, request, limits, label, max_objects)
    counts = _sample_counts(targets, parameters, limits)
    calls = _Calls(servable, lambda samples: on_samples(samples, sum(counts)))
    explanations: list[Sequence[Explanation]] = []
    for remaining, target, count in zip(range(len(targets), 0, -1), targets, counts, strict=True):
        now = time.monotonic()
        timed_target = msgspec.structs.replace(target, model=calls)
        explanations.append(explain_target(timed_target, parameters, count, before(now + (end - now) / remaining)))
    return ExplainedResult(result=calls.timed(result), explanations=explanations, samples=calls.inputs)


def explanation_targets(
    servable: Servable, request: InferenceRequest, limits: Limits, label: str | None, max_objects: int
) -> tuple[InferenceResult, Sequence[ExplanationTarget]]:
    """Answer a request. Return the result, and the target to explain in each of its images.

    With `label`, only this class is explained; `max_objects` limits the objects of each image. Raise InferenceError as
    `Servable.predict`, and INVALID_REQUEST for an unknown label.
    """
    task = cast("ExplainableTask[Any]", servable.task)
    result, items, predictions = _answer(servable, request, limits, servable.model)
    selected = [prediction for output in result.outputs for prediction in output.predictions]
    target = partial(ExplanationTarget, task=task, model=partial(servable.call, servable.model))
    try:
        return result, [
            target(item=item, predictions=task.targets(prediction, filtered, label, max_objects))
            for item, prediction, filtered in zip(items, predictions, selected, strict=True)
        ]
    except InferenceError as error:
        raise (error.with_prefix("parameters") if error.path == "label" else error) from None


def _answer(
    servable: Servable, request: InferenceRequest, limits: Limits, runner: Runner
) -> tuple[InferenceResult, Sequence[Any], Sequence[Any]]:
    """Return the result, and each decoded sample with its prediction before the task selects."""
    started = time.perf_counter_ns()
    groups = servable.task.decode(request, servable.defaults, limits)
    decode_ns = time.perf_counter_ns() - started
    if (step := servable.split_step) is not None:
        # Without parts, `split` returns nothing.
        for group, parts in zip(groups, servable.split(groups), strict=False):
            if any(parts):
                advice = "send 0, and explain the answer without them"
                message = f"Explanations are for the whole image, not for {step.output}: {advice}"
                raise invalid(message, f"inputs[{group.index}].parameters.{step.parameter}")
    result, predictions = servable.run(groups, runner, decode_ns)
    return result, [item for group in groups for item in group.items], predictions


def _explain_by_model(servable: Servable, request: InferenceRequest, limits: Limits) -> ExplainedResult:
    model = cast("SelfExplainingModel[Any, Any]", servable.model)
    explanations: list[Any] = []

    def explain(items: Sequence[Any], /) -> Sequence[Any]:
        explained = model.explain(items)
        explanations.extend(explanation for _, explanation in explained)
        return [prediction for prediction, _ in explained]

    result, _, _ = _answer(servable, request, limits, explain)
    return ExplainedResult(result=result, explanations=explanations, samples=0)


def _explain_rows(
    servable: Servable,
    request: InferenceRequest,
    limits: Limits,
    parameters: RowExplanationParameters,
    should_continue: Callable[[], bool],
) -> ExplainedResult:
    """Explain each row of a request to a TENSOR model."""
    result, (item, *_), (prediction, *_) = _answer(servable, request, limits, servable.model)
    calls = _Calls(servable)
    target = RowTarget(model=calls, item=item, prediction=prediction, labels=servable.description.labels)
    orders = _order_count(order_cost(target), target.row_count, parameters.samples, limits.max_explanation_samples)
    importances = explain_rows(target, parameters, orders, should_continue)
    samples = sum(importance.samples for importance in importances)
    return ExplainedResult(result=calls.timed(result), explanations=[importances], samples=samples)


def _sample_counts(
    targets: Sequence[ExplanationTarget], parameters: ExplanationParameters, limits: Limits
) -> list[int]:
    """Return the masked copies of each image. The default is reduced to fit the limit."""
    max_samples = limits.max_explanation_samples
    share = max(1, min(DEFAULT_SAMPLES, max_samples // len(targets)))
    counts = [sample_count(target, parameters, share) for target in targets]
    if sum(counts) > max_samples:
        requested = f"{sum(counts)} for {len(targets)} images" if len(targets) > 1 else str(sum(counts))
        name = "grid" if parameters.method is ExplanationMethod.OCCLUSION else "samples"
        unit = "masked copies in one request (--max-explanation-samples)"
        message = f"Expected at most {max_samples} {unit}, got {requested}"
        raise InferenceError(ErrorKind.TOO_LARGE, message, f"parameters.{name}")
    return counts


def _order_count(cost: int, row_count: int, samples: int | None, max_samples: int) -> int:
    """Return the number of orders for the requested samples. The default is reduced to fit the limit."""
    if cost <= 0:
        return 1
    if samples is None:
        orders = max(1, min(DEFAULT_SAMPLES * row_count, max_samples) // cost)
    else:
        orders = -(-samples * row_count // cost)
    if orders * cost > max_samples:
        unit = "copies of rows in one request (--max-explanation-samples)"
        raise too_large(max_samples, unit, orders * cost, "parameters.samples")
    return orders


class _Calls:
    """Call a model, count its inputs and the time of its calls, and report the inputs."""

    def __init__(self, servable: Servable, on_inputs: Callable[[int], None] = lambda _: None) -> None:
        self._servable, self._on_inputs = servable, on_inputs
        self.inputs = self._nanoseconds = 0

    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        started = time.perf_counter_ns()
        predictions = self._servable.call(self._servable.model, inputs)
        self._nanoseconds += time.perf_counter_ns() - started
        self.inputs += len(inputs)
        self._on_inputs(len(inputs))
        return predictions

    def timed(self, result: InferenceResult) -> InferenceResult:
        """Return a result with the time of the calls."""
        return msgspec.structs.replace(result, model_ns=result.model_ns + self._nanoseconds)
