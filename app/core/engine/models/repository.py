"""Load and unload models at run time."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from weakref import WeakValueDictionary

import msgspec

from app.core.engine.error_text import redact_paths
from app.core.engine.models.registry import CHARIOT_PREFIX, ModelState, Registration, Registry
from app.core.engine.models.servable import Servable, load_model
from app.core.engine.scheduling.thread_pool import run_in_daemon_thread
from app.core.settings.model import ModelError, ModelSource
from tasks.inference.error import ErrorKind, InferenceError, invalid

_logger = logging.getLogger(__name__)

UNLOADED = "unloaded"
"""The reason for a model that was unloaded on purpose."""


class Repository:
    """The models on disk, and the registry that they are loaded into.

    Args:
        registry: the models that are served.
        discover: scan the disk for models.
        load: load a model.
        timeout: seconds that a change of a model waits for another change of it, and a scan waits for its changes. A
            model that hangs while it loads thus blocks no other model.

    Attributes:
        checks: called with the versions of a model before they are loaded; raise ModelError to reject their settings.
    """

    def __init__(
        self,
        registry: Registry,
        discover: Callable[[], Sequence[ModelSource]],
        load: Callable[[ModelSource], Servable],
        timeout: float = 60.0,
    ) -> None:
        self.registry = registry
        self.checks: list[Callable[[Sequence[ModelSource]], None]] = []
        self._discover = discover
        self._load = load
        self._timeout = timeout
        # Weak references drop unused locks: clients may invent names.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._pending_changes: dict[str, asyncio.Task[None]] = {}
        self._fingerprints: dict[str, object] | None = None
        # By model: the version that failed in the last load, and the reason.
        self._failures: dict[str, tuple[str, str]] = {}

    async def index(self) -> Sequence[Registration]:
        """Return every version of every model and tensor view, including those on disk that were never loaded."""
        known = [*self.registry.registrations, *self.registry.tensor_views]
        known_versions = {(registration.source.name, registration.source.version) for registration in known}
        for source in await run_in_daemon_thread(self._sources):
            if (source.name, source.version) not in known_versions:
                failed_version, failure = self._failures.get(source.name, ("", ""))
                reason = failure if source.version == failed_version else "not loaded"
                known.append(Registration(source=source, state=ModelState.UNAVAILABLE, reason=reason, enabled=False))
        return known

    async def load(self, name: str) -> None:
        """Load every version of a model from disk, and replace the versions that are served.

        The old versions answer until all new ones are ready, and stay if one of them cannot be loaded. Raise
        MODEL_NOT_FOUND if no model on disk has the name, INVALID_REQUEST if a plugin rejects its settings,
        MODEL_NOT_READY if it cannot be loaded, or another load of it takes too long.
        """
        async with self._locked(name):
            self._failures.pop(name, None)
            sources = [source for source in await run_in_daemon_thread(self._sources) if source.name == name]
            if not sources:
                raise InferenceError(ErrorKind.MODEL_NOT_FOUND, f"Nothing in the repository is called {name!r}")
            if len({source.version for source in sources}) < len(sources):
                message = f"Failed to load {name!r}: two models have this name and version; rename one of them"
                raise InferenceError(ErrorKind.MODEL_NOT_READY, message)
            ready: list[Registration] = []
            source, kind = sources[0], ErrorKind.INVALID_REQUEST
            try:
                for check in self.checks:
                    check(sources)
                kind = ErrorKind.MODEL_NOT_READY
                for source in sources:
                    servable = await run_in_daemon_thread(partial(load_model, source, self._load))
                    ready.append(Registration(source=source, state=ModelState.READY, servable=servable))
            except ModelError as error:
                fields = {"model": name, "version": source.version, "reason": str(error)}
                _logger.error("model failed to load", extra=fields)
                reason = redact_paths(str(error), source)
                self._failures[name] = source.version, reason
                raise InferenceError(kind, f"Failed to load {name!r}: {reason}") from None
            self.registry.replace(name, ready)
            warn_of_hidden_name(name)
            for registration in ready:
                _logger.info("model ready", extra={"model": name, "version": registration.source.version})

    async def unload(self, name: str) -> None:
        """Stop serving a model. Requests in flight are answered.

        Raise MODEL_NOT_FOUND if no model has the name, MODEL_NOT_READY if a load of it takes too long.
        """
        async with self._locked(name):
            versions = self.registry.versions(name)
            if not versions:
                raise InferenceError(ErrorKind.MODEL_NOT_FOUND, f"No model is called {name!r}")
            unloaded = [
                msgspec.structs.replace(
                    version, state=ModelState.UNAVAILABLE, reason=UNLOADED, servable=None, enabled=False
                )
                for version in versions
            ]
            self.registry.replace(name, unloaded)
            _logger.info("model unloaded", extra={"model": name})

    async def refresh(self) -> None:
        """Load new and changed models from disk, and unload removed ones.

        Changes are found by comparing fingerprints with the last call's; the first call changes nothing. A model
        that was unloaded on purpose, or that failed to load, is not loaded again before its files change. If no
        models can be found, nothing is unloaded: the disk is more likely unavailable than empty.
        """
        try:
            fingerprints = await run_in_daemon_thread(self._scan)
        except (ModelError, OSError) as error:
            _logger.error("model repository is unreachable", extra={"reason": str(error)})
            return
        previous, self._fingerprints = self._fingerprints, fingerprints
        if previous is None:
            return
        for name in self._pending_changes:
            # A model whose change is in progress is compared after it has finished.
            fingerprints.pop(name, None)
            if name in previous:
                fingerprints[name] = previous[name]
        changed = [name for name, fingerprint in fingerprints.items() if previous.get(name) != fingerprint]
        removed = [name for name in previous.keys() - fingerprints.keys() if self.registry.owner(name)]
        tasks = {name: self._start_change(name, self.load) for name in changed}
        tasks |= {name: self._start_change(name, self.unload) for name in removed}
        if tasks:
            # A model that hangs must not delay later scans.
            _, unfinished = await asyncio.wait(tasks.values(), timeout=self._timeout)
            for name in [name for name, task in tasks.items() if task in unfinished]:
                _logger.warning("model takes long to load", extra={"model": name, "seconds": self._timeout})

    def _start_change(self, name: str, change: Callable[[str], Awaitable[None]]) -> asyncio.Task[None]:
        async def run_change() -> None:
            try:
                await change(name)
            except InferenceError as error:
                _logger.error("a change on disk is not served", extra={"model": name, "reason": str(error)})
            finally:
                del self._pending_changes[name]

        self._pending_changes[name] = task = asyncio.create_task(run_change())
        return task

    @asynccontextmanager
    async def _locked(self, name: str) -> AsyncGenerator[None]:
        """Hold the lock of a model. Raise MODEL_NOT_READY if it is not free in time, INVALID_REQUEST for a view."""
        if (owner := self.registry.owner(name)) not in ("", name):
            raise invalid(f"{name!r} is the tensor view of the model {owner!r}; load or unload {owner!r}")
        lock = self._locks.get(name)
        if lock is None:
            self._locks[name] = lock = asyncio.Lock()
        try:
            async with asyncio.timeout(self._timeout):
                await lock.acquire()
        except TimeoutError:
            message = f"Model {name!r} is still being loaded or unloaded; try again later"
            raise InferenceError(ErrorKind.MODEL_NOT_READY, message) from None
        try:
            yield
        finally:
            lock.release()

    def _scan(self) -> dict[str, object]:
        """Return a fingerprint of the files of each model on disk."""
        sources_by_name: dict[str, list[ModelSource]] = {}
        for source in self._discover():
            sources_by_name.setdefault(source.name, []).append(source)
        return {name: _fingerprint(sources) for name, sources in sources_by_name.items()}

    def _sources(self) -> Sequence[ModelSource]:
        try:
            return self._discover()
        except (ModelError, OSError):
            return ()


def _fingerprint(sources: Sequence[ModelSource]) -> object:
    """Return the names, sizes and times of a model's files, including settings in the parent folder of a version."""
    folders = {folder for source in sources for folder in (source.folder, source.folder.parent)}
    files = {file for folder in folders for file in folder.glob("*")}
    files |= {file for source in sources for file in source.folder.glob("*/*")}
    fingerprint: list[tuple[str, int, int]] = []
    for file in sorted(files):
        # A file may be removed meanwhile.
        with suppress(FileNotFoundError):
            if file.is_file():
                fingerprint.append((str(file), file.stat().st_size, file.stat().st_mtime_ns))
    return fingerprint


def chariot_name_warning(name: str) -> str:
    """Return a warning for a name that V2 paths read as a Chariot id; empty for any other name."""
    if not name.startswith(CHARIOT_PREFIX):
        return ""
    return (
        f"Under /v2/models/ the name {name!r} means the Chariot id {name.removeprefix(CHARIOT_PREFIX)!r}, and is "
        "answered in Chariot's format; rename the model to serve it over KServe V2"
    )


def warn_of_hidden_name(name: str) -> None:
    """Log a warning if V2 paths read the name of a model as a Chariot id."""
    if reason := chariot_name_warning(name):
        _logger.warning("model name hidden", extra={"model": name, "reason": reason})
