"""Recordings and images that have had their time are deleted."""

import logging
import time
from collections.abc import Callable

from app.recording.images import SHARDS, ImageFolder
from app.recording.store import Store

__all__ = ("Retention",)

_AT_ONCE = 500
_SOON = 0.05
_LATER = 60.0
_SHARD_SECONDS = 10.0

_LEAP = 60.0
"""Seconds that the clock may get ahead between two looks, which are a minute apart at most, without being doubted."""

_STEADY = 3600.0

_logger = logging.getLogger(__name__)


class Retention:
    """Deletes a little at a time, between what is written.

    A file of an image goes when no inference within its period has it. Nothing is deleted for an hour after the clock
    was set forward: what looks too old then may not be, if somebody sets the clock right again.

    Args:
        store: of the records.
        folder: of the images, where they are kept.
        records: seconds that records are kept; None keeps them for ever.
        images: the same of images; not longer than `records`.
        clock: seconds since 1970.
        steady: seconds from any beginning, by a clock that nobody sets.
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
        """Seconds until there may be something to do, None when there never is."""
        dues = [
            due
            for due, period in ((self._records_due, self._records), (self._images_due, self._images))
            if period is not None
        ]
        return min(max(0.0, min(dues) - self._clock()), _LATER) if dues else None

    def step(self) -> None:
        """Delete a little of what is due.

        Raises:
            StoreError: as the store does; the next step is in a minute then.
            OSError: when a file cannot be deleted.
        """
        now = self._clock()
        if self._is_doubtful(now):
            return
        if self._records is not None and _has_come(self._records_due, now):
            self._records_due = now + _LATER
            deleted = self._store.delete_before(int((now - self._records) * 1e6), _AT_ONCE)
            if deleted == _AT_ONCE:
                self._records_due = now + _SOON
        if self._folder is not None and self._images is not None and _has_come(self._images_due, now):
            self._images_due = now + _SHARD_SECONDS
            shard, self._shard = self._shard, (self._shard + 1) % SHARDS
            self._delete_images(self._folder, shard, now - self._images)

    def _is_doubtful(self, now: float) -> bool:
        steady = self._steady()
        before, self._apart = self._apart, now - steady
        if self._apart - before > _LEAP:
            self._doubted, self._doubted_until = True, steady + _STEADY
            ahead = round(self._apart - before)
            _logger.warning("the clock was set; nothing is deleted until it has been steady", extra={"seconds": ahead})
            # So that it is looked at again in a minute, by this clock.
            self._records_due = self._images_due = now
        elif steady >= self._doubted_until:
            self._doubted = False
        if self._doubted:
            self._records_due = self._images_due = now + _LATER
        return self._doubted

    def _delete_images(self, folder: ImageFolder, shard: int, since: float) -> None:
        unused = folder.unused(shard, since)[:_AT_ONCE]
        if unused:
            in_use = self._store.images_since(unused, int(since * 1e6))
            self._store.forget_images(folder.remove([each for each in unused if each not in in_use], since))


def _has_come(due: float, now: float) -> bool:
    """Whether it is `due`; also when that is further ahead than it was ever set, because the clock was set back."""
    return not now < due <= now + _LATER
