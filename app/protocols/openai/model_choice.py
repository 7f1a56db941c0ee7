"""Find the model of a request."""

from app.engine.engine import Engine
from app.engine.models.registry import Registration
from app.protocols.openai.unsupported import UnsupportedError
from app.protocols.openai_models import is_listed
from tasks.inference.error import InferenceError


def default_model(engine: Engine) -> str:
    """Return the model of a request that names none.

    Raises:
        InferenceError: the server has several models.
    """
    try:
        return engine.registry.default_name()
    except InferenceError as error:
        raise InferenceError(error.kind, "Expected the name of a model: this server has several", "model") from None


def text_model(engine: Engine, name: str) -> Registration:
    """Return a model that answers with text.

    Raises:
        InferenceError: MODEL_NOT_FOUND or MODEL_NOT_READY; INVALID_REQUEST for a model of another task.
    """
    registration = engine.registry.find(name)
    if registration.ready_servable().description.task_type.returns != "texts":
        raise unsupported_model(registration, "answers with text")
    return registration


def listed_model(engine: Engine, name: str) -> Registration:
    """Return a model that answers with text or with vectors.

    Raises:
        InferenceError: as `text_model`.
    """
    registration = engine.registry.find(name)
    if not is_listed(registration.ready_servable()):
        raise unsupported_model(registration, "answers with text or vectors")
    return registration


def unsupported_model(registration: Registration, expected: str) -> UnsupportedError:
    """Return the error for a model that does not do what is `expected`."""
    name, task_type = registration.source.name, registration.ready_servable().description.task_type
    message = f"Expected a model that {expected}, {name!r} has the task {task_type}; use /v2/models/{name}"
    return UnsupportedError(message, "model", "unsupported_model")
