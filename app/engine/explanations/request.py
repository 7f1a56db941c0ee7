"""Answer a request, and explain the answers."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from app.engine.explanations.result import ExplainedResult, TimedModel, explanation_deadline
from app.engine.explanations.rows import explain_rows_of_request
from app.engine.models.servable import Servable
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tasks.inference.parameters import read_parameters
from tasks.inference.request import InferenceRequest
from tasks.saliency.explanation import DEFAULT_SAMPLES, ExplanationMethod, ExplanationParameters
from tasks.saliency.sampling import ExplanationTarget, explain_target, sample_count
from tasks.saliency.words import TextExplanationParameters, copy_count, explain_words

__all__ = ("explain_request",)


class _Method(msgspec.Struct, frozen=True, kw_only=True):
    """How one kind of input is explained.

    Attributes:
        parameters_type: the parameters of the explanation.
        count: copies that a target needs with these parameters; at most the given default if they set no number.
        explain: explains a target with that many copies.
        inputs: name of the inputs in messages.
        copies: name of the copies in messages.
    """

    parameters_type: type[Any]
    count: Callable[[ExplanationTarget[Any, Any], Any, int], int]
    explain: Callable[[ExplanationTarget[Any, Any], Any, int, Callable[[], bool]], Sequence[Any]]
    inputs: str
    copies: str


_PIXELS = _Method(
    parameters_type=ExplanationParameters,
    count=lambda target, parameters, default: sample_count(target.image, parameters, default),
    explain=explain_target,
    inputs="images",
    copies="masked copies",
)
_WORDS = _Method(
    parameters_type=TextExplanationParameters,
    count=copy_count,
    explain=explain_words,
    inputs="texts",
    copies="copies of texts",
)


def explain_request(
    servable: Servable,
    request: InferenceRequest,
    limits: Limits,
    should_continue: Callable[[], bool],
    remaining_seconds: float | None = None,
    on_samples: Callable[[int, int], None] = lambda _, __: None,
) -> ExplainedResult[Any]:
    """Answer every input of `request`, and explain the answers by the method of the model.

    The remaining time is divided evenly among the remaining images or texts. A model that explains itself takes its own
    time.

    Args:
        servable: the model.
        request: its parameters include those of the explanations.
        limits: limits on one request.
        should_continue: called every few samples; when it returns False, the explanations use the samples taken so far.
        remaining_seconds: seconds until the deadline of the request; the samples get most of them.
        on_samples: called with the number of changed copies that the model has just processed, and that of all.

    Raises:
        InferenceError: as `Servable.check_explained` and `Servable.predict`; INVALID_REQUEST for invalid explanation
            parameters; TOO_LARGE for more samples than one request may take.
    """
    servable.check_explained(request.model_name)
    match servable.explained_by:
        case "model":
            result, own = servable.explain_itself(request, limits)
            return ExplainedResult(result=result, explanations=own, samples=0)
        case "numbers":
            return explain_rows_of_request(servable, request, limits, should_continue, remaining_seconds)
        case "words":
            method: _Method = _WORDS
        case _:
            method = _PIXELS
    return _explain_parts(method, servable, request, limits, should_continue, remaining_seconds, on_samples)


def _explain_parts(
    method: _Method,
    servable: Servable,
    request: InferenceRequest,
    limits: Limits,
    should_continue: Callable[[], bool],
    remaining_seconds: float | None,
    on_samples: Callable[[int, int], None],
) -> ExplainedResult[Any]:
    """Explain images by their pixels, or texts by their words."""
    started = time.monotonic()
    parameters = read_parameters(method.parameters_type, request.parameters)
    try:
        explanation_targets = servable.explanation_targets(request, limits, parameters.label, parameters.max_objects)
    except InferenceError as error:
        if error.path != "label":
            raise
        raise error.with_prefix("parameters") from None
    targets = [target for output in explanation_targets.targets for target in output]
    counts = _sample_counts(method, targets, parameters, limits)
    deadline = explanation_deadline(started, parameters.max_seconds, limits, remaining_seconds)
    explanations_of_targets: list[Sequence[Any]] = []
    models: list[TimedModel] = []
    for remaining, target, count in zip(range(len(targets), 0, -1), targets, counts, strict=True):
        now = time.monotonic()
        until = now + (deadline - now) / remaining
        model = TimedModel(target.model, lambda samples: on_samples(samples, sum(counts)))
        timed_target = msgspec.structs.replace(target, model=model)
        explanations_of_targets.append(
            method.explain(
                timed_target, parameters, count, lambda until=until: should_continue() and time.monotonic() < until
            )
        )
        models.append(model)
    model_ns = explanation_targets.result.model_ns + sum(model.nanoseconds for model in models)
    explanations = iter(explanations_of_targets)
    return ExplainedResult(
        result=msgspec.structs.replace(explanation_targets.result, model_ns=model_ns),
        explanations=[[next(explanations) for _ in output] for output in explanation_targets.targets],
        samples=sum(model.inputs for model in models),
    )


def _sample_counts(
    method: _Method, targets: Sequence[ExplanationTarget[Any, Any]], parameters: Any, limits: Limits
) -> list[int]:
    max_samples = limits.max_explanation_samples
    share = max(1, min(DEFAULT_SAMPLES, max_samples // len(targets)))
    counts = [method.count(target, parameters, share) for target in targets]
    if sum(counts) > max_samples:
        requested = f"{sum(counts)} for {len(targets)} {method.inputs}" if len(targets) > 1 else str(sum(counts))
        occluded_images = method is _PIXELS and parameters.method is ExplanationMethod.OCCLUSION
        path = "parameters.grid" if occluded_images else "parameters.samples"
        message = f"Expected at most {max_samples} {method.copies} in one request, got {requested}"
        raise InferenceError(ErrorKind.TOO_LARGE, message, path)
    return counts
