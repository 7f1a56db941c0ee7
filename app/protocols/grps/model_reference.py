"""Resolve the model that a request names as ``name-version``."""

from app.engine.models.registry import Registry
from tasks.inference.error import ErrorKind, InferenceError, quote_value


def resolve_model(registry: Registry, model: str) -> tuple[str, str | None]:
    """Return the name and version that `model` means; the default model if it is empty, no version if none is given.

    A full match of a model's name comes first, because names may contain dashes. Otherwise, the last dash with a known
    name before it separates name and version.

    Raises:
        InferenceError: MODEL_NOT_FOUND.
    """
    if not model:
        return _default(registry), None
    if registry.has_model(model):
        return model, None
    name, dash, version = model.rpartition("-")
    while dash:
        if registry.has_model(name):
            return name, version
        name, dash, _ = name.rpartition("-")
        version = model[len(name) + 1 :]
    raise InferenceError(
        ErrorKind.MODEL_NOT_FOUND, f"Model {quote_value(model)} is not known. {_available_models(registry)}", "model"
    )


def _default(registry: Registry) -> str:
    try:
        return registry.default_name()
    except InferenceError as error:
        message = 'Expected the name of a model: none is set as default with "default": true in its model-settings.json'
        raise InferenceError(error.kind, f"{message}. {_available_models(registry)}", "model") from None


def _available_models(registry: Registry) -> str:
    names = ", ".join(
        f"{registration.source.name}-{registration.source.version}" for registration in registry.registrations
    )
    return f"This server has: {names or 'no models'}"
