"""The application: an ingress, and the deployments that run models behind it."""

import importlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from app.assembly.models import sources
from app.assembly.ray_serve.ingress import ALL_MODELS, Ingress
from app.assembly.ray_serve.options import RayOptions, model_options, read_options
from app.assembly.ray_serve.replica import model_replica

__all__ = ("build",)

_serve: Any = importlib.import_module("ray.serve")

_SCALED = {"min_replicas": 1, "max_replicas": 4, "target_ongoing_requests": 4}
_DEFAULTS: Mapping[str, Any] = {
    "autoscaling_config": _SCALED,
    "max_ongoing_requests": 64,
    "ray_actor_options": {"num_cpus": 1},
}
_OLD_AND_NEW = 2
"""A deployment of one model holds what it is to become beside what it is, and loses neither while it changes."""


def build(arguments: Mapping[str, object]) -> Any:
    """Build the application.

    Args:
        arguments: see `RayOptions`.

    Returns:
        A ``ray.serve.Application``.

    Raises:
        SettingsError: for arguments that are not understood.
        ModelError: when they name no models.
    """
    options = read_options(arguments)
    versions = Counter(each.name for each in sources(model_options(options.choice)))
    held = options.multiplexed or _OLD_AND_NEW * max(versions.values())
    fixed = options.without_choice()
    replica = model_replica(held, options.batch_size, options.batch_wait_seconds)
    handles = {
        name: _deployed(replica, "models" if name == ALL_MODELS else f"model-{name}", options.models).bind()
        for name in ([ALL_MODELS] if options.multiplexed else sorted(versions))
    }
    ingress = _deployed(_serve.ingress()(Ingress), "ingress", options.ingress)
    return ingress.options(user_config=_user_config(options)).bind(fixed, handles)


def _deployed(kind: type, name: str, told: Mapping[str, Any]) -> Any:
    chosen: dict[str, Any] = {**_DEFAULTS, **told}
    if "num_replicas" in told:
        del chosen["autoscaling_config"]
    return _serve.deployment(kind).options(name=name, **chosen)


def _user_config(options: RayOptions) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(options.choice).items() if value is not None}
