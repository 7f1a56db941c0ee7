"""Load models while the server already answers, and poll the repository for changes."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial

from app.engine.models.registry import ModelState, Registry, chariot_name_warning
from app.engine.models.repository import Repository
from app.engine.models.servable import Servable
from app.engine.scheduling.daemon_thread import run_in_daemon_thread
from app.server.process_setup import freeze_garbage
from app.settings.model import ModelSource

_logger = logging.getLogger(__name__)


class ModelLoading:
    """Load every model of a registry once, in threads, so that health checks are answered meanwhile.

    Args:
        registry: holds the models.
        load: loads one model.

    Attributes:
        when_finished: called once in the event loop, with whether any model is ready.
    """

    def __init__(self, registry: Registry, load: Callable[[ModelSource], Servable]) -> None:
        self.when_finished: Callable[[bool], None] = lambda _: None
        self._registry = registry
        self._load = load
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Return whether a model is loading, which can outlast the shutdown."""
        return any(registration.state is ModelState.LOADING for registration in self._registry.registrations)

    def start(self) -> None:
        """Start to load, in the running event loop."""
        self._task = asyncio.create_task(self._load_all())

    async def stop(self) -> None:
        """Start no further loads; loads in progress continue."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _load_all(self) -> None:
        sources = [registration.source for registration in self._registry.registrations]
        for name in dict.fromkeys(source.name for source in sources):
            if reason := chariot_name_warning(name):
                _logger.warning("model name hidden", extra={"model": name, "reason": reason})
        await asyncio.gather(*(run_in_daemon_thread(partial(self._load_one, source)) for source in sources))
        freeze_garbage()
        self.when_finished(any(registration.servable is not None for registration in self._registry.registrations))

    def _load_one(self, source: ModelSource) -> None:
        registration = self._registry.load(source, self._load)
        fields = {"model": source.name, "version": source.version}
        if registration.servable is not None:
            _logger.info("model ready", extra=fields)
        else:
            _logger.error("model failed to load", extra={**fields, "reason": registration.detail})


@asynccontextmanager
async def polling(repository: Repository, seconds: float | None) -> AsyncGenerator[None]:
    """While entered, reload the changes of the model repository every `seconds`; never if None."""
    if seconds is None:
        yield
        return
    await repository.refresh()
    task = asyncio.create_task(_poll(repository, seconds))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _poll(repository: Repository, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            await repository.refresh()
        except Exception:
            _logger.exception("model repository scan failed")
