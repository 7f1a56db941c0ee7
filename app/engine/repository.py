"""Loading and unloading models while the server answers."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from weakref import WeakValueDictionary

import msgspec

from app.engine.daemon import in_daemon_thread
from app.engine.reasons import without_paths
from app.engine.registry import ModelState, Registration, Registry, loaded
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
        patience: seconds that a change of a model waits for another change of it, and a look at the disk for all that
            it brings about. A model that hangs while it is loaded holds up nothing but itself.
    """

    def __init__(
        self,
        registry: Registry,
        discover: Callable[[], Sequence[ModelSource]],
        load: Callable[[ModelSource], Servable],
        patience: float = 60.0,
    ) -> None:
        self.registry = registry
        self._discover = discover
        self._load = load
        self._patience = patience
        # Forgotten as soon as nobody holds or waits for them: names may be made up.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._following: dict[str, asyncio.Task[None]] = {}
        self._prints: dict[str, object] | None = None

    @property
    def following(self) -> bool:
        """Whether something that changed on disk is still being loaded."""
        return bool(self._following)

    async def index(self) -> Sequence[Registration]:
        """Every version of every model, those included that lie on disk and were never loaded."""
        known = list(self.registry.registrations)
        names = {(each.source.name, each.source.version) for each in known}
        known += [
            Registration(source=each, state=ModelState.UNAVAILABLE, reason="not loaded", wanted=False)
            for each in await in_daemon_thread(self._sources)
            if (each.name, each.version) not in names
        ]
        return known

    async def load(self, name: str) -> None:
        """Load every version of a model from disk, and put them in the place of those that serve.

        What serves goes on serving until the new versions are ready, and for good when one of them cannot be loaded.

        Raises:
            InferenceError: MODEL_NOT_FOUND when nothing on disk has the name, MODEL_NOT_READY when it cannot be loaded,
                or is being loaded already and that takes long.
        """
        async with self._turn(name):
            sources = [each for each in await in_daemon_thread(self._sources) if each.name == name]
            if not sources:
                raise InferenceError(ErrorKind.MODEL_NOT_FOUND, f"Nothing in the repository is called {name!r}")
            ready: list[Registration] = []
            for source in sources:
                fields = {"model": name, "version": source.version}
                try:
                    servable = await in_daemon_thread(partial(loaded, source, self._load))
                except ModelError as error:
                    _logger.error("model failed to load", extra={**fields, "reason": str(error)})
                    reason = without_paths(str(error), source)
                    raise InferenceError(ErrorKind.MODEL_NOT_READY, f"Failed to load {name!r}: {reason}") from None
                ready.append(Registration(source=source, state=ModelState.READY, servable=servable))
            self.registry.replace(name, ready)
            for each in ready:
                _logger.info("model ready", extra={"model": name, "version": each.source.version})

    async def unload(self, name: str) -> None:
        """Serve a model no longer. Requests in flight are answered.

        Raises:
            InferenceError: MODEL_NOT_FOUND when no model has the name, MODEL_NOT_READY when it is being loaded and that
                takes long.
        """
        async with self._turn(name):
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
            _logger.info("model unloaded", extra={"model": name})

    async def refresh(self) -> None:
        """Bring what is served in line with what lies on disk: load what is new or changed, unload what is gone.

        What changed is told by comparing with the call before; the first one only looks. A model that was unloaded on
        purpose stays so until its files change, and one that cannot be loaded is not tried again until then. A
        repository in which nothing is found is left for another time: it is more likely out of reach than emptied.
        """
        try:
            sources = await in_daemon_thread(self._discover)
        except (ModelError, OSError) as error:
            _logger.error("models cannot be looked for", extra={"reason": str(error)})
            return
        found: dict[str, list[ModelSource]] = {}
        for source in sources:
            found.setdefault(source.name, []).append(source)
        prints = {name: await in_daemon_thread(partial(_fingerprint, sources)) for name, sources in found.items()}
        before, self._prints = self._prints, prints
        if before is None:
            return
        for name in self._following:
            # What came of it is looked at when it is done.
            prints.pop(name, None)
            if name in before:
                prints[name] = before[name]
        changed = [name for name, found_now in prints.items() if before.get(name) != found_now]
        gone = [name for name in before.keys() - prints.keys() if self.registry.knows(name)]
        begun = {name: self._follow(name, self.load) for name in changed}
        begun |= {name: self._follow(name, self.unload) for name in gone}
        await self._followed(begun)

    def _follow(self, name: str, change: Callable[[str], Awaitable[None]]) -> asyncio.Task[None]:
        async def follow() -> None:
            try:
                await change(name)
            except InferenceError as error:
                _logger.error("a change on disk is not served", extra={"model": name, "reason": str(error)})
            finally:
                del self._following[name]

        self._following[name] = task = asyncio.create_task(follow())
        return task

    async def _followed(self, begun: Mapping[str, asyncio.Task[None]]) -> None:
        """Wait for changes, but not for ever, and for none twice: one that hangs is not to slow down every look."""
        if not begun:
            return
        _, late = await asyncio.wait(begun.values(), timeout=self._patience)
        for name in [name for name, task in begun.items() if task in late]:
            _logger.warning("model takes long to load", extra={"model": name, "seconds": self._patience})

    @asynccontextmanager
    async def _turn(self, name: str) -> AsyncGenerator[None]:
        """Entered by one at a time for each model.

        Raises:
            InferenceError: MODEL_NOT_READY when another is inside for long.
        """
        lock = self._turns.get(name)
        if lock is None:
            self._turns[name] = lock = asyncio.Lock()
        try:
            async with asyncio.timeout(self._patience):
                await lock.acquire()
        except TimeoutError:
            message = f"Model {name!r} is still being loaded or unloaded; try again later"
            raise InferenceError(ErrorKind.MODEL_NOT_READY, message) from None
        try:
            yield
        finally:
            lock.release()

    def _sources(self) -> Sequence[ModelSource]:
        try:
            return self._discover()
        except (ModelError, OSError):
            return ()


def _fingerprint(sources: Sequence[ModelSource]) -> object:
    """Names, sizes and times of the files of a model; settings that lie above versions are among them."""
    folders = {folder for source in sources for folder in (source.folder, source.folder.parent)}
    files = {file for folder in folders for file in folder.glob("*") if file.is_file()}
    files |= {file for source in sources for file in source.folder.glob("*/*") if file.is_file()}
    return sorted((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files)
