"""What explains the answers of a model."""

from collections.abc import Mapping
from typing import Literal

from app.core.engine.models.registry import Registry
from app.core.engine.models.servable import Servable, explains_itself
from app.plugins.explanations.rows import UNEXPLAINED_ROWS, explains_rows
from tasks.inference.error import ErrorKind, InferenceError
from tasks.task import ExplainedPart

Explainer = ExplainedPart | Literal["model"]
"""What explains answers: copies of the inputs without some of these parts, or the model itself."""


def explainer_of(servable: Servable) -> Explainer | None:
    """Return what explains the answers: the model's own `explain` precedes the method of the task type; else None."""
    return _explainer(servable)[0]


def explainers(registry: Registry) -> Mapping[str, str]:
    """Return what explains each ready model, by name: `pixels`, `numbers` or the `model` itself."""
    # The latest version answers requests without one.
    latest = {
        name: next((version.servable for version in registry.versions(name) if version.servable is not None), None)
        for name in registry.names
    }
    explained = {name: explainer_of(servable) for name, servable in latest.items() if servable is not None}
    return {name: explainer for name, explainer in explained.items() if explainer is not None}


def check_explained(servable: Servable, model_name: str) -> Explainer:
    """Return what explains the answers of a model. Raise UNSUPPORTED, with the reason, if they cannot be explained."""
    explainer, reason = _explainer(servable)
    if explainer is None:
        message = f"Model {model_name!r} ({servable.task.task_type}) does not support explanations"
        raise InferenceError(ErrorKind.UNSUPPORTED, f"{message}, because {reason}")
    return explainer


def _explainer(servable: Servable) -> tuple[Explainer | None, str]:
    """Return what explains the answers, or None and the reason."""
    task = servable.task
    part = task.task_type.explains
    if explains_itself(servable.model):
        return "model", ""
    takes_rows = servable.description.takes == "tensor" and explains_rows(servable.inputs, servable.outputs)
    if part == "numbers" and not takes_rows:
        return None, UNEXPLAINED_ROWS
    return part, "" if part else "explanations of texts need a model that explains itself"
