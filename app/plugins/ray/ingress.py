"""The application on Ray Serve: deployments of models, and an ingress, the complete service with remote models."""

import asyncio
import importlib
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from litestar.types import ASGIApp, Message, Receive, Scope, Send

from app.core.assembly.models import find_models, through_loaders
from app.core.assembly.service import Service
from app.core.engine.error_text import redact_paths
from app.core.engine.models.registry import ModelState, Registration, Registry
from app.core.engine.models.repository import Repository
from app.core.engine.models.servable import Servable
from app.core.server.logs.output import configure_logging
from app.core.server.process_setup import configure_process
from app.core.settings.model import ModelError, ModelSource
from app.core.settings.server import SettingsError
from app.plugins.ray.options import RayOptions, model_options, read_options, server_settings
from app.plugins.ray.remote import RemoteModel
from app.plugins.ray.replica import model_replica

_ALL_MODELS = "*"
"""The key for all models, where one deployment runs them all."""

_AUTOSCALING = {"min_replicas": 1, "max_replicas": 4, "target_ongoing_requests": 4}
_DEFAULTS: Mapping[str, Any] = {
    "autoscaling_config": _AUTOSCALING,
    "max_ongoing_requests": 64,
    "ray_actor_options": {"num_cpus": 1},
}
_VERSIONS_DURING_UPDATE = 2
"""During an update, a deployment holds the new source of each version beside the old one."""

# The type checker's environment has no Ray, so its names are Any.
_serve: Any = importlib.import_module("ray.serve")
_logger = logging.getLogger(__name__)


class Ingress:
    """One replica of the ingress. Ray passes the user config before the first request and whenever it changes.

    The handles of model deployments are by model name or `_ALL_MODELS`.
    """

    def __init__(self, options: RayOptions, handles: Mapping[str, Any]) -> None:
        configure_process()
        settings = server_settings(options.settings)
        configure_logging(settings.log_format)
        self._options = options
        self._handles = handles
        self._sources: Sequence[ModelSource] = ()
        self._reconfigure_lock = asyncio.Lock()
        self._service = Service(settings, lambda: self._sources)
        registry = self._service.registry
        # Also load models remotely when a client uses the repository API.
        self._service.engine.repository = Repository(registry, lambda: self._sources, self._load)

    def __serve_build_asgi_app__(self) -> ASGIApp:
        return _without_request_id(self._service.app)

    async def reconfigure(self, user_config: Mapping[str, object]) -> None:
        """Serve the models that `user_config` names. A changed model keeps serving until its new source is loaded.

        Raise SettingsError for an invalid config, when no model is served yet. Raise ModelError when the config names
        no models, and no model is served yet.
        """
        async with self._reconfigure_lock:
            registry = self._service.registry
            try:
                self._sources = await asyncio.to_thread(_discover_models, user_config)
            except (ModelError, SettingsError) as error:
                # Raising would make Ray end every replica because of a typing mistake.
                if not registry.registrations:
                    raise
                _logger.error("model configuration not applied", extra={"reason": str(error)})
                return
            by_name: dict[str, list[ModelSource]] = {}
            for source in self._sources:
                by_name.setdefault(source.name, []).append(source)
            served = {registration.source.name for registration in registry.registrations}
            await asyncio.gather(*(self._update_model(name, sources) for name, sources in by_name.items()))
            for name in served - by_name.keys():
                registry.replace(name, ())

    async def _update_model(self, name: str, sources: Sequence[ModelSource]) -> None:
        """Replace the versions of a model with `sources`, if one of them can be loaded or none is registered."""
        registry = self._service.registry
        previous = {registration.source.version: registration for registration in registry.versions(name)}
        loaded = await asyncio.gather(*(self._registration(source, previous.get(source.version)) for source in sources))
        if any(registration.servable is not None for registration in loaded) or not previous:
            registry.replace(name, loaded)

    async def _registration(self, source: ModelSource, previous: Registration | None) -> Registration:
        if previous is not None and previous.servable is not None and previous.source == source:
            return previous
        try:
            servable = await asyncio.to_thread(self._load, source)
        except ModelError as error:
            _logger.error("model failed to load", extra={"model": source.name, "reason": str(error)})
            if previous is not None and previous.servable is not None:
                return previous
            reason = redact_paths(str(error), source)
            return Registration(source=source, state=ModelState.UNAVAILABLE, reason=reason, detail=str(error))
        return Registration(source=source, state=ModelState.READY, servable=servable)

    def _load(self, source: ModelSource) -> Servable:
        return through_loaders(source, "load", self._load_remote, remote=True)

    def _load_remote(self, source: ModelSource) -> Servable:
        if source.fault is not None:
            raise ModelError(source.fault)
        handle = self._handles.get(source.name, self._handles.get(_ALL_MODELS))
        if handle is None:
            known = ", ".join(self._handles)
            raise ModelError(f"No deployment runs {source.name!r}, only {known}; redeploy the application")
        model = RemoteModel(source, handle, self._options.timeout_seconds, self._options.retries)
        return model.binding.servable(model)


def _without_request_id(app: ASGIApp) -> ASGIApp:
    """Return `app` without its response header `x-request-id`: Ray's proxy adds its own, which has the same value."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_others(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [header for header in message["headers"] if header[0] != b"x-request-id"]
            await send(message)

        await app(scope, receive, send_others)

    return wrapped


def _discover_models(user_config: Mapping[str, object]) -> Sequence[ModelSource]:
    sources = find_models(model_options(user_config))
    # Building a registry rejects two models with the same name.
    Registry(sources)
    return sources


def build(arguments: Mapping[str, object]) -> Any:
    """Build the application, as `charioteer.ray_application` describes."""
    options, user_config = read_options(arguments)
    versions = Counter(source.name for source in find_models(model_options(user_config)))
    models_per_replica = options.multiplexed or _VERSIONS_DURING_UPDATE * max(versions.values())
    replica = model_replica(models_per_replica, options.batch_size, options.batch_wait_seconds)
    handles = {
        name: _deployment(replica, "models" if name == _ALL_MODELS else f"model-{name}", options.models).bind()
        for name in ([_ALL_MODELS] if options.multiplexed else sorted(versions))
    }
    ingress = _deployment(_serve.ingress()(Ingress), "ingress", options.ingress)
    return ingress.options(user_config=user_config).bind(options, handles)


def _deployment(deployment_class: type, name: str, overrides: Mapping[str, Any]) -> Any:
    deployment_options: dict[str, Any] = {**_DEFAULTS, **overrides}
    if "num_replicas" in overrides:
        del deployment_options["autoscaling_config"]
    return _serve.deployment(deployment_class).options(name=name, **deployment_options)
