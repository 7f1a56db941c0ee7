"""Loading and unloading models while the server answers."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from app.engine.daemon import in_daemon_thread
from app.engine.registry import ModelState, Registration, Registry
from app.engine.servable import Servable
from app.settings.model import ModelError, ModelSource
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("UNLOADED", "Repository")

_logger = logging.getLogger(__name__)

UNLOADED = "unloaded"
"""The reason of a model that was unloaded on purpose."""


class Repository:
    """The models on disk, and the registry they are loaded into.

    Args:
        registry: what is served.
        discover: finds every model on disk, anew each time.
        load: makes a model ready to answer.
    """

    def __init__(
        self, registry: Registry, discover: Callable[[], Sequence[ModelSource]], load: Callable[[ModelSource], Servable]
    ) -> None:
        self.registry = registry
        self._discover = discover
        self._load = load
        self._turn = asyncio.Lock()
        self._prints: dict[str, object] | None = None

    async def index(self) -> Sequence[Registration]:
        """Every version of every model, those included that lie on disk and were never loaded."""
        known = list(self.registry.registrations)
        names = {(each.source.name, each.source.version) for each in known}
        known += [
            Registration(source=each, state=ModelState.UNAVAILABLE, reason="not loaded", wanted=False)
            for each in await asyncio.to_thread(self._sources)
            if (each.name, each.version) not in names
        ]
        return known

    async def load(self, name: str) -> None:
        """Load every version of a model from disk, and put them in the place of those that serve.

        What serves goes on serving until the new versions are ready, and for good when one of them cannot be loaded.

        Raises:
            InferenceError: MODEL_NOT_FOUND when nothing on disk has the name, MODEL_NOT_READY when it cannot be loaded.
        """
        async with self._turn:
            sources = [each for each in await asyncio.to_thread(self._sources) if each.name == name]
            if not sources:
                raise InferenceError(ErrorKind.MODEL_NOT_FOUND, f"Nothing in the repository is called {name!r}")
            loaded: list[Registration] = []
            for source in sources:
                try:
                    servable = await in_daemon_thread(partial(self._load, source))
                except ModelError as error:
                    raise InferenceError(ErrorKind.MODEL_NOT_READY, f"Failed to load {name!r}: {error}") from None
                loaded.append(Registration(source=source, state=ModelState.READY, servable=servable))
            self.registry.replace(name, loaded)

    async def unload(self, name: str) -> None:
        """Serve a model no longer. Requests in flight are answered.

        Raises:
            InferenceError: MODEL_NOT_FOUND when no model has the name.
        """
        async with self._turn:
            versions = self.registry.versions(name)
            if not versions:
                raise InferenceError(ErrorKind.MODEL_NOT_FOUND, f"No model is called {name!r}")
            idle = [
                msgspec.structs.replace(
                    each, state=ModelState.UNAVAILABLE, reason=UNLOADED, servable=None, wanted=False
                )
                for each in versions
            ]
            self.registry.replace(name, idle)

    async def refresh(self) -> None:
        """Bring what is served in line with what lies on disk: load what is new or changed, unload what is gone.

        What changed is told by comparing with the call before; the first one only looks. A model that was unloaded on
        purpose stays so until its files change, and one that cannot be loaded is not tried again until then. A
        repository in which nothing is found is left for another time: it is more likely out of reach than emptied.
        """
        try:
            sources = await asyncio.to_thread(self._discover)
        except (ModelError, OSError) as error:
            _logger.error("models cannot be looked for", extra={"reason": str(error)})
            return
        found: dict[str, list[ModelSource]] = {}
        for source in sources:
            found.setdefault(source.name, []).append(source)
        prints = {name: await asyncio.to_thread(_fingerprint, sources) for name, sources in found.items()}
        before, self._prints = self._prints, prints
        if before is None:
            return
        for name in [name for name, found_now in prints.items() if before.get(name) != found_now]:
            try:
                await self.load(name)
            except InferenceError as error:
                _logger.error("model failed to load", extra={"model": name, "reason": str(error)})
        for name in before.keys() - prints.keys():
            if self.registry.knows(name):
                await self.unload(name)

    def _sources(self) -> Sequence[ModelSource]:
        try:
            return self._discover()
        except ModelError:
            return ()


def _fingerprint(sources: Sequence[ModelSource]) -> object:
    """Names, sizes and times of the files of a model; settings that lie above versions are among them."""
    folders = {folder for source in sources for folder in (source.folder, source.folder.parent)}
    files = {file for folder in folders for file in folder.glob("*") if file.is_file()}
    files |= {file for source in sources for file in source.folder.glob("*/*") if file.is_file()}
    return sorted((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files)
