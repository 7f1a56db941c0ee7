"""The deployment that reads requests and writes answers: the whole service, its models elsewhere."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from litestar.types import ASGIApp

from app.assembly.models import sources
from app.assembly.ray_serve.options import RayOptions, model_options, read_choice, server_settings
from app.assembly.ray_serve.remote import RemoteModel, remote_servable
from app.assembly.service import Service
from app.engine.reasons import without_paths
from app.engine.registry import ModelState, Registration, Registry
from app.engine.repository import Repository
from app.engine.servable import Servable
from app.server.access.exposure import cors_origins
from app.server.cross_site import without_cross_site
from app.server.log_output import configure_logging
from app.server.tuning import tune_process
from app.settings.model import ModelError, ModelSource
from app.settings.server import SettingsError

__all__ = ("ALL_MODELS", "Ingress")

ALL_MODELS = "*"
"""Stands for every model's name where one deployment runs them all."""

_logger = logging.getLogger(__name__)


class Ingress:
    """One replica of it. Ray hands it the user config before the first request, and whenever that changes.

    Args:
        options: of the application.
        handles: of the deployments that run models, by model name or `ALL_MODELS`.
    """

    def __init__(self, options: RayOptions, handles: Mapping[str, Any]) -> None:
        tune_process()
        settings = server_settings(options.settings)
        configure_logging(settings.log_format)
        self._options = options
        self._origins = cors_origins(settings)
        self._handles = handles
        self._sources: Sequence[ModelSource] = ()
        self._turn = asyncio.Lock()
        self._service = Service(settings, lambda: self._sources)
        registry = self._service.registry
        # What clients load by the repository's paths comes from the replicas as well.
        self._service.engine.repository = Repository(registry, lambda: self._sources, self._load)

    def __serve_build_asgi_app__(self) -> ASGIApp:
        return without_cross_site(self._service.app, origins=self._origins)

    async def reconfigure(self, user_config: Mapping[str, object]) -> None:
        """Serve what `user_config` names. A model that changed goes on answering as it was until the new one is loaded.

        Raises:
            SettingsError: for a config that is not understood, when nothing is served yet.
            ModelError: when it names no models, and nothing is served yet.
        """
        async with self._turn:
            registry = self._service.registry
            try:
                self._sources = await asyncio.to_thread(_found, user_config)
            except (ModelError, SettingsError) as error:
                # Ray would end this replica, and every other, for a slip of the pen.
                if not registry.registrations:
                    raise
                _logger.error("models stay as they are", extra={"reason": str(error)})
                return
            by_name: dict[str, list[ModelSource]] = {}
            for source in self._sources:
                by_name.setdefault(source.name, []).append(source)
            served = {each.source.name for each in registry.registrations}
            await asyncio.gather(*(self._bring(name, found) for name, found in by_name.items()))
            for name in served - by_name.keys():
                registry.replace(name, ())

    async def _bring(self, name: str, found: Sequence[ModelSource]) -> None:
        """Put the versions in `found` in the place of those that serve, when they can be loaded or nothing serves."""
        registry = self._service.registry
        before = {each.source.version: each for each in registry.versions(name)}
        loaded = await asyncio.gather(*(self._registration(each, before.get(each.version)) for each in found))
        if any(each.servable is not None for each in loaded) or not before:
            registry.replace(name, loaded)

    async def _registration(self, source: ModelSource, before: Registration | None) -> Registration:
        if before is not None and before.servable is not None and before.source == source:
            return before
        try:
            servable = await asyncio.to_thread(self._load, source)
        except ModelError as error:
            _logger.error("model failed to load", extra={"model": source.name, "reason": str(error)})
            if before is not None and before.servable is not None:
                return before
            reason = without_paths(str(error), source)
            return Registration(source=source, state=ModelState.UNAVAILABLE, reason=reason, detail=str(error))
        return Registration(source=source, state=ModelState.READY, servable=servable)

    def _load(self, source: ModelSource) -> Servable:
        if source.fault is not None:
            raise ModelError(source.fault)
        handle = self._handles.get(source.name, self._handles.get(ALL_MODELS))
        if handle is None:
            known = ", ".join(self._handles)
            raise ModelError(f"No deployment runs {source.name!r}, only {known}; deploy the application anew")
        model = RemoteModel(source, handle, self._options.timeout_seconds, self._options.retries)
        return remote_servable(model)


def _found(user_config: Mapping[str, object]) -> Sequence[ModelSource]:
    found = sources(model_options(read_choice(user_config)))
    # A registry refuses two models of one name; this one is for that alone.
    Registry(found)
    return found
