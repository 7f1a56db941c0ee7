"""Describe a server and its models in YAML, as GRPS's own servers describe their configuration."""

from collections.abc import Sequence
from typing import Any

import msgspec
import yaml

from app import __version__
from app.engine.engine import Engine
from app.engine.models.registry import Registration
from app.protocols.grps.tensors import wire_type
from tasks.inference.error import ErrorKind, InferenceError, quote_value
from tasks.inference.tensor import TensorSpec

__all__ = ("describe_model", "describe_server")


def describe_server(engine: Engine) -> str:
    """Describe the server, its limits, the default model, and every model."""
    names = sorted({registration.source.name for registration in engine.registry.registrations})
    return _to_yaml(
        {
            "server": {"name": "charioteer", "version": __version__, "online": engine.online},
            "limits": msgspec.to_builtins(engine.limits),
            "default_model": _default(engine),
            "models": [_entry(engine.registry.versions(name)) for name in names],
        }
    )


def describe_model(engine: Engine, name: str) -> str:
    """Describe one model, by its name without a version.

    Raises:
        InferenceError: INVALID_REQUEST for an empty name, MODEL_NOT_FOUND for an unknown name.
    """
    versions = engine.registry.versions(name)
    if not versions:
        names = sorted({registration.source.name for registration in engine.registry.registrations})
        message = f"Model {quote_value(name)} is not known. This server has: {', '.join(names) or 'no models'}"
        raise InferenceError(ErrorKind.MODEL_NOT_FOUND, message, "str_data")
    return _to_yaml(_entry(versions))


def _default(engine: Engine) -> str | None:
    try:
        return engine.registry.default_name()
    except InferenceError:
        return None


def _entry(versions: Sequence[Registration]) -> dict[str, Any]:
    """Describe a model's latest ready version, or else its latest version; and list all versions."""
    chosen = next((registration for registration in versions if registration.servable is not None), versions[0])
    entry: dict[str, Any] = {
        "name": chosen.source.name,
        "version": chosen.source.version,
        "versions": [registration.source.version for registration in reversed(versions)],
        "state": chosen.state.value,
    }
    if chosen.servable is None:
        return {**entry, "reason": chosen.reason}
    description = chosen.servable.description
    return {
        **entry,
        "task_type": description.task_type.value,
        "inferer_type": description.platform,
        "labels": list(description.labels),
        "inputs": [_spec(spec) for spec in chosen.servable.inputs],
        "outputs": [_spec(spec) for spec in chosen.servable.outputs],
    }


def _spec(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "dtype": wire_type(spec.datatype).name, "shape": list(spec.shape)}


def _to_yaml(content: dict[str, Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
