"""What GRPS tells of a server and its models: YAML, as its own servers tell what stands in their configuration."""

from collections.abc import Sequence
from typing import Any

import msgspec
import yaml

from app import __version__
from app.engine.engine import Engine
from app.engine.registry import Registration
from app.protocols.grps.tensors import wire_type
from tasks.exchange.error import ErrorKind, InferenceError, brief
from tasks.exchange.tensor import TensorSpec

__all__ = ("describe_model", "describe_server")


def describe_server(engine: Engine) -> str:
    """The server, its limits, the model that answers where none is named, and every model."""
    names = sorted({each.source.name for each in engine.registry.registrations})
    return _written(
        {
            "server": {"name": "charioteer", "version": __version__, "online": engine.online},
            "limits": msgspec.to_builtins(engine.limits),
            "default_model": _default(engine),
            "models": [_entry(engine.registry.versions(name)) for name in names],
        }
    )


def describe_model(engine: Engine, name: str) -> str:
    """One model, by its bare name.

    Raises:
        InferenceError: INVALID_REQUEST for no name, MODEL_NOT_FOUND for an unknown one.
    """
    versions = engine.registry.versions(name)
    if not versions:
        names = sorted({each.source.name for each in engine.registry.registrations})
        message = f"Model {brief(name)} is not known. This server has: {', '.join(names) or 'no models'}"
        raise InferenceError(ErrorKind.MODEL_NOT_FOUND, message, "str_data")
    return _written(_entry(versions))


def _default(engine: Engine) -> str | None:
    try:
        return engine.registry.default_name()
    except InferenceError:
        return None


def _entry(versions: Sequence[Registration]) -> dict[str, Any]:
    """The latest version that is ready, or the latest; and which others there are."""
    shown = next((each for each in versions if each.servable is not None), versions[0])
    entry: dict[str, Any] = {
        "name": shown.source.name,
        "version": shown.source.version,
        "versions": [each.source.version for each in reversed(versions)],
        "state": shown.state.value,
    }
    if shown.servable is None:
        return {**entry, "reason": shown.reason}
    description = shown.servable.description
    return {
        **entry,
        "task_type": description.task_type.value,
        "inferer_type": description.platform,
        "labels": list(description.labels),
        "inputs": [_spec(each) for each in shown.servable.inputs],
        "outputs": [_spec(each) for each in shown.servable.outputs],
    }


def _spec(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "dtype": wire_type(spec.datatype).name, "shape": list(spec.shape)}


def _written(content: dict[str, Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
