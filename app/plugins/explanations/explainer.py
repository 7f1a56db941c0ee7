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
    if explains_itself(servable.model):
        return "model"
    part = servable.task.task_type.explains
    takes_rows = servable.description.takes == "tensor" and explains_rows(servable.inputs, servable.outputs)
    return part if part != "numbers" or takes_rows else None


def explainers(registry: Registry) -> Mapping[str, str]:
    """Return what explains each ready model, by name: `pixels`, `numbers` or the `model` itself."""
    found: dict[str, str] = {}
    for name in registry.names:
        # The latest version answers requests without one.
        ready = (version.servable for version in registry.versions(name) if version.servable is not None)
        if (servable := next(ready, None)) and (explainer := explainer_of(servable)):
            found[name] = explainer
    return found


def check_explained(servable: Servable, model_name: str) -> Explainer:
    """Return what explains the answers of a model. Raise UNSUPPORTED, with the reason, if they cannot be explained."""
    explainer, task_type = explainer_of(servable), servable.task.task_type
    if explainer is None:
        of_texts = "explanations of texts need a model that explains itself"
        reason = UNEXPLAINED_ROWS if task_type.explains else of_texts
        message = f"Model {model_name!r} ({task_type}) does not support explanations"
        raise InferenceError(ErrorKind.UNSUPPORTED, f"{message}, because {reason}")
    return explainer
