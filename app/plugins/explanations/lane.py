"""Explain the answer to a request in the lane of explanations."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from app.core.engine.engine import Engine
from app.core.engine.models.servable import Servable
from app.core.engine.request_context import RequestContext
from app.core.hooks import Host, Parts
from app.plugins.explanations.explainer import explainers
from app.plugins.explanations.request import explain_request
from app.plugins.explanations.settings import ExplanationSettings
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse, InferenceResult

WireT = TypeVar("WireT")

Explanations = Sequence[Sequence[Any]]
"""For each output of a response, for each of its samples: one explanation for each explained prediction or row, as the
`explainer_of` the servable makes them; or the explanation of a model that explains itself."""


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

    Explanations have their own workers and queue. They end early if the server stops or the client disconnects. The
    arguments are those of `Engine.handle`; the parameters of the request are those of the explanation, and `encode`
    gets the explanations by descending score. Raise InferenceError for every failure; UNSUPPORTED for a task that
    cannot be explained, OVERLOADED if too many explanations wait.
    """
    context.explanation = True

    def should_continue() -> bool:
        return not engine.draining and context.cancellation is None

    def answer(servable: Servable, request: InferenceRequest) -> tuple[InferenceResult, Explanations]:
        explained = explain_request(servable, request, engine.limits, should_continue, context.remaining)
        context.explanation_samples = explained.samples
        return explained.result, explained.explanations

    return await engine.handle(context, model_name, decode, encode, engine.lane("explanation"), answer)
