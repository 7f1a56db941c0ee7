"""Poll the model repository for changes."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from app.engine.models.repository import Repository

__all__ = ("polling",)

_logger = logging.getLogger(__name__)


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
