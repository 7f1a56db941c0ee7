"""Build the application: an ingress, and the deployments that run models behind it."""

import importlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

from app.assembly.models import find_models
from app.assembly.ray_serve.ingress import ALL_MODELS, Ingress
from app.assembly.ray_serve.options import model_options, read_options
from app.assembly.ray_serve.replica import model_replica

_serve: Any = importlib.import_module("ray.serve")

_AUTOSCALING = {"min_replicas": 1, "max_replicas": 4, "target_ongoing_requests": 4}
_DEFAULTS: Mapping[str, Any] = {
    "autoscaling_config": _AUTOSCALING,
    "max_ongoing_requests": 64,
    "ray_actor_options": {"num_cpus": 1},
}
_VERSIONS_DURING_UPDATE = 2
"""During an update, a deployment holds the new source of each version beside the old one."""


def build(arguments: Mapping[str, object]) -> Any:
    """Build the application, as `app.assembly.ray_serve.application` describes."""
    options, user_config = read_options(arguments)
    versions = Counter(source.name for source in find_models(model_options(user_config)))
    models_per_replica = options.multiplexed or _VERSIONS_DURING_UPDATE * max(versions.values())
    replica = model_replica(models_per_replica, options.batch_size, options.batch_wait_seconds)
    handles = {
        name: _deployment(replica, "models" if name == ALL_MODELS else f"model-{name}", options.models).bind()
        for name in ([ALL_MODELS] if options.multiplexed else sorted(versions))
    }
    ingress = _deployment(_serve.ingress()(Ingress), "ingress", options.ingress)
    return ingress.options(user_config=user_config).bind(options, handles)


def _deployment(deployment_class: type, name: str, overrides: Mapping[str, Any]) -> Any:
    deployment_options: dict[str, Any] = {**_DEFAULTS, **overrides}
    if "num_replicas" in overrides:
        del deployment_options["autoscaling_config"]
    return _serve.deployment(deployment_class).options(name=name, **deployment_options)
