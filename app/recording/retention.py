"""Delete recordings and images after their retention period."""

import logging
import time
from collections.abc import Callable

from app.recording.images import SHARDS, ImageFolder
from app.recording.store import Store

__all__ = ("Retention",)

_MAX_DELETED = 500
_NEXT_SECONDS = 0.05
_CHECK_SECONDS = 60.0
_SHARD_SECONDS = 10.0

_MAX_JUMP = 60.0
"""Accepted clock jump in seconds between two checks, which are at most a minute apart."""

_STEADY_SECONDS = 3600.0

_logger = logging.getLogger(__name__)


class Retention:
    """Delete a few expired items at a time, between writes.

    An image file is deleted when no inference within its period refers to it. Nothing is deleted for an hour after the
    clock was set forward: if that was a mistake, the recordings have not expired.

    Args:
        store: the store of the records.
        folder: the folder of the images, if they are stored.
        records: retention period of records in seconds; None keeps them forever.
        images: retention period of images in seconds; not longer than `records`.
        clock: seconds since 1970.
        steady: a monotonic clock in seconds.
    """

    def __init__(
        self,
        store: Store,
        folder: ImageFolder | None,
        records: float | None,
        images: float | None,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._folder = folder
        self._records = records
        self._images = images if folder is not None else None
        self._clock = clock
        self._steady = steady
        self._apart = clock() - steady()
        self._doubted_until = 0.0
        self._doubted = False
        self._records_due = self._images_due = clock()
        self._shard = 0

    @property
    def due(self) -> float | None:
        """Seconds until the next check, None when nothing ever expires."""
        dues = [
            due
            for due, period in ((self._records_due, self._records), (self._images_due, self._images))
            if period is not None
        ]
        return min(max(0.0, min(dues) - self._clock()), _CHECK_SECONDS) if dues else None

    def step(self) -> None:
        """Delete a few expired items.

        Raises:
            StoreError: when the store fails; the next step is in a minute then.
            OSError: when a file cannot be deleted.
        """
        now = self._clock()
        if self._is_doubtful(now):
            return
        if self._records is not None and _is_due(self._records_due, now):
            self._records_due = now + _CHECK_SECONDS
            deleted = self._store.delete_before(int((now - self._records) * 1e6), _MAX_DELETED)
            if deleted == _MAX_DELETED:
                self._records_due = now + _NEXT_SECONDS
        if self._folder is not None and self._images is not None and _is_due(self._images_due, now):
            self._images_due = now + _SHARD_SECONDS
            shard, self._shard = self._shard, (self._shard + 1) % SHARDS
            self._delete_images(self._folder, shard, now - self._images)

    def _is_doubtful(self, now: float) -> bool:
        steady = self._steady()
        before, self._apart = self._apart, now - steady
        if self._apart - before > _MAX_JUMP:
            self._doubted, self._doubted_until = True, steady + _STEADY_SECONDS
            ahead = round(self._apart - before)
            _logger.warning("the clock was set; nothing is deleted until it has been steady", extra={"seconds": ahead})
            # Check again in a minute by the new clock.
            self._records_due = self._images_due = now
        elif steady >= self._doubted_until:
            self._doubted = False
        if self._doubted:
            self._records_due = self._images_due = now + _CHECK_SECONDS
        return self._doubted

    def _delete_images(self, folder: ImageFolder, shard: int, since: float) -> None:
        unused = folder.unused(shard, since)[:_MAX_DELETED]
        if unused:
            in_use = self._store.images_since(unused, int(since * 1e6))
            self._store.forget_images(folder.remove([digest for digest in unused if digest not in in_use], since))


def _is_due(due: float, now: float) -> bool:
    """Return whether `due` has passed, or is impossibly far ahead because the clock was set back."""
    return not now < due <= now + _CHECK_SECONDS
