"""Which model a request means by ``name-version``."""

from app.engine.registry import Registry
from tasks.exchange.error import ErrorKind, InferenceError, brief

__all__ = ("addressed",)


def addressed(registry: Registry, model: str) -> tuple[str, str | None]:
    """The name that `model` means, and the version where it gives one; the default model where it is empty.

    A model whose whole name it is comes first: names may have dashes themselves. Then the last dash that has a known
    name before it is taken for the one before a version.

    Raises:
        InferenceError: MODEL_NOT_FOUND.
    """
    if not model:
        return _default(registry), None
    if registry.knows(model):
        return model, None
    name, dash, version = model.rpartition("-")
    while dash:
        if registry.knows(name):
            return name, version
        name, dash, _ = name.rpartition("-")
        version = model[len(name) + 1 :]
    raise InferenceError(ErrorKind.MODEL_NOT_FOUND, f"Model {brief(model)} is not known. {_choices(registry)}", "model")


def _default(registry: Registry) -> str:
    try:
        return registry.default_name()
    except InferenceError as error:
        message = 'Expected the name of a model: none is set as default with "default": true in its model-settings.json'
        raise InferenceError(error.kind, f"{message}. {_choices(registry)}", "model") from None


def _choices(registry: Registry) -> str:
    known = ", ".join(f"{each.source.name}-{each.source.version}" for each in registry.registrations)
    return f"This server has: {known or 'no models'}"
