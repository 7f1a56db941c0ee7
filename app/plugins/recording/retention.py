"""Delete recordings and images after their retention period."""

import logging
import time
from collections.abc import Callable

from app.plugins.recording.images import SHARDS, ImageFolder
from app.plugins.recording.stores.store import Store

_MAX_DELETED = 500
_BACKLOG_SECONDS = 0.05
_CHECK_SECONDS = 60.0
_SHARD_SECONDS = 10.0

_MAX_JUMP_SECONDS = 60.0
"""Accepted clock jump in seconds between two checks, which are at most a minute apart."""

_PAUSE_SECONDS = 3600.0

_logger = logging.getLogger(__name__)


class Retention:
    """Delete a few expired items at a time, between writes.

    An image file is deleted when no inference within its period refers to it. Nothing is deleted for an hour after the
    clock was set forward: if that was a mistake, the recordings have not expired.

    Args:
        store: the store of the records.
        folder: the folder of the images, if they are stored.
        record_seconds: retention period of records in seconds; None keeps them forever.
        image_seconds: retention period of images in seconds; not longer than `record_seconds`.
        clock: seconds since 1970.
        monotonic: a monotonic clock in seconds.
    """

    def __init__(
        self,
        store: Store,
        folder: ImageFolder | None,
        record_seconds: float | None,
        image_seconds: float | None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._folder, self._clock, self._monotonic = store, folder, clock, monotonic
        self._record_seconds = record_seconds
        self._image_seconds = image_seconds if folder is not None else None
        self._clock_offset = clock() - monotonic()
        # Times of the monotonic clock.
        self._records_due = self._images_due = self._paused_until = monotonic()
        self._shard = 0

    @property
    def due(self) -> float | None:
        """Seconds until the next check, None when nothing ever expires."""
        periods = (self._records_due, self._record_seconds), (self._images_due, self._image_seconds)
        due_times = [due for due, period in periods if period is not None]
        if not due_times:
            return None
        return min(max(0.0, max(min(due_times), self._paused_until) - self._monotonic()), _CHECK_SECONDS)

    def step(self) -> None:
        """Delete a few expired items.

        Raise StoreError when the store fails; the next step is in a minute then. Raise OSError when a file cannot be
        deleted.
        """
        now, monotonic_now = self._clock(), self._monotonic()
        if self._is_paused(now, monotonic_now):
            return
        if self._record_seconds is not None and monotonic_now >= self._records_due:
            self._records_due = monotonic_now + _CHECK_SECONDS
            deleted = self._store.delete_before(int((now - self._record_seconds) * 1e6), _MAX_DELETED)
            if deleted == _MAX_DELETED:
                self._records_due = monotonic_now + _BACKLOG_SECONDS
        if self._folder is not None and self._image_seconds is not None and monotonic_now >= self._images_due:
            self._images_due = monotonic_now + _SHARD_SECONDS
            shard, self._shard = self._shard, (self._shard + 1) % SHARDS
            self._delete_images(self._folder, shard, now - self._image_seconds)

    def _is_paused(self, now: float, monotonic_now: float) -> bool:
        previous_offset, self._clock_offset = self._clock_offset, now - monotonic_now
        jump_seconds = self._clock_offset - previous_offset
        if jump_seconds > _MAX_JUMP_SECONDS:
            self._paused_until = monotonic_now + _PAUSE_SECONDS
            _logger.warning("deletion paused after a clock change", extra={"seconds": round(jump_seconds)})
        return monotonic_now < self._paused_until

    def _delete_images(self, folder: ImageFolder, shard: int, cutoff: float) -> None:
        unused = folder.find_unused(shard, cutoff)[:_MAX_DELETED]
        if unused:
            in_use = self._store.images_since(unused, int(cutoff * 1e6))
            self._store.mark_images_deleted(
                folder.remove([digest for digest in unused if digest not in in_use], cutoff)
            )
