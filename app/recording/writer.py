"""The one thread that writes recordings, as many at once as are waiting."""

import errno
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from app.recording.entry import Entry, not_recorded
from app.recording.images import ImageFolder
from app.recording.report import BEHIND, STOPPING, Report
from app.recording.retention import Retention
from app.recording.store import Store, StoreError, StoreFault
from app.settings.server import SettingsError

__all__ = ("Writer",)

_MOST_AT_ONCE = 256
_MOST_ROWS_AT_ONCE = 2048
_MOST_BYTES = 256 * 1024 * 1024
_BETWEEN_COMMITS = 0.02
_BETWEEN_COMMITS_UNAWAITED = 0.1
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
_LONGEST_WRITE = 10.0

_logger = logging.getLogger(__name__)


class Writer:
    """Writes what is put to it, in groups, and deletes what is too old in between.

    While somebody waits, a store that fails refuses at once what comes meanwhile, and is tried again with what comes
    after a pause. While nobody does, it is tried again and again with what waits.

    Args:
        store: written to by this writer's thread only.
        folder: where images go, if anywhere.
        retention: what is deleted.
        report: told of everything.
        awaited: whether somebody waits for what is put to be written.
        most_waiting: so many requests may wait.
        longest_write: seconds after which those who wait for a write are told that it failed, whatever becomes of it.
    """

    def __init__(
        self,
        store: Store,
        folder: ImageFolder | None,
        retention: Retention,
        report: Report,
        *,
        awaited: bool,
        most_waiting: int,
        longest_write: float = _LONGEST_WRITE,
    ) -> None:
        self._store = store
        self._folder = folder
        self._retention = retention
        self._report = report
        self._awaited = awaited
        self._most_waiting = most_waiting
        self._longest_write = longest_write
        self._changed = threading.Condition()
        self._waiting: deque[Entry] = deque()
        self._waiting_bytes = 0
        self._idle = False
        self._batch: Sequence[Entry] = ()
        self._batch_begun = 0.0
        # Since when the store, or the folder, has been at work; None while nothing is asked of them.
        self._busy_since: float | None = None
        self._fault: StoreFault | None = None
        self._retry_at = 0.0
        self._pause = _FIRST_PAUSE
        self._closing = threading.Event()
        self._last_moment = 0.0
        self._opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
        report.watch(lambda: len(self._waiting))

    def start(self) -> None:
        """Open the store, and begin.

        Raises:
            SettingsError: when the store was written by a later version.
            StoreError: when it cannot be opened, if somebody waits for what is put; else it is tried again later.
        """
        self._thread.start()
        self._opened.result()
        if self._awaited:
            threading.Thread(target=self._watch, name="recording-watch", daemon=True).start()

    @property
    def refusing(self) -> str | None:
        """Why whatever is put now would be refused, None where it would not."""
        if self._awaited and self._fault is not None and time.monotonic() < self._retry_at:
            return self._fault
        return None

    def put(self, entry: Entry) -> str | None:
        """Take over a request; does not block.

        Returns:
            Why it is not written, None when it will be.
        """
        with self._changed:
            refusal = self._refusal(entry)
            if refusal is None:
                self._waiting.append(entry)
                self._waiting_bytes += entry.size
                if self._idle:
                    self._idle = False
                    self._changed.notify()
        return refusal

    def close(self, timeout: float) -> None:
        """Write what waits, for `timeout` seconds at the longest, and end."""
        self._last_moment = time.monotonic() + timeout
        with self._changed:
            self._closing.set()
            self._changed.notify()
        self._thread.join(timeout + 1)
        with self._changed:
            left = [*self._batch, *self._waiting]
            self._waiting.clear()
        self._refuse([each for each in left if not each.settled], STOPPING)

    def _refusal(self, entry: Entry) -> str | None:
        if self._closing.is_set():
            return STOPPING
        if (fault := self.refusing) is not None:
            return fault
        full = self._waiting_bytes + entry.size > _MOST_BYTES
        return BEHIND if len(self._waiting) >= self._most_waiting or (full and self._waiting) else None

    def _run(self) -> None:
        try:
            self._open()
        except Exception as error:  # noqa: BLE001  whoever started it is told
            self._store.close()
            self._opened.set_exception(error)
            return
        self._opened.set_result(None)
        while (batch := self._take()) is not None:
            try:
                if batch:
                    self._keep(batch)
                self._delete()
            except Exception as error:
                # Whoever waits would wait for ever for a thread that is no more.
                _logger.exception("recording went wrong")
                self._report.failed(StoreError(StoreFault.FAILED, str(error)))
                with self._changed:
                    left, self._batch, self._retry_at = self._batch, (), 0.0
                self._refuse([each for each in left if not each.settled], StoreFault.FAILED)
        self._store.close()

    def _open(self) -> None:
        try:
            if self._folder is not None:
                _told(self._folder.open)
            self._store.open()
        except StoreError as error:
            if self._awaited:
                raise
            self._report.failed(error)

    def _take(self) -> Sequence[Entry] | None:
        """What is to be written next; nothing when it is time to delete, None at the end."""
        with self._changed:
            self._busy_since = None
            if not self._waiting:
                if self._closing.is_set():
                    return None
                self._idle = True
                self._changed.wait(self._retention.due)
                self._idle = False
            if not self._waiting:
                return ()
        # A commit costs as much as a dozen inferences. One that comes alone is written at once; where many come, those
        # of a moment share a commit.
        apart = _BETWEEN_COMMITS if self._awaited else _BETWEEN_COMMITS_UNAWAITED
        self._closing.wait(max(0.0, self._batch_begun + apart - time.monotonic()))
        with self._changed:
            batch: list[Entry] = []
            rows = 0
            while self._waiting and len(batch) < _MOST_AT_ONCE and rows < _MOST_ROWS_AT_ONCE:
                entry = self._waiting.popleft()
                self._waiting_bytes -= entry.size
                rows += len(entry.converted.rows)
                batch.append(entry)
            self._batch, self._batch_begun = batch, time.monotonic()
            self._busy_since = self._batch_begun
            self._retry_at = float("inf")
        return batch

    def _keep(self, batch: Sequence[Entry]) -> None:
        while True:
            begun = time.monotonic()
            try:
                self._write([each for each in batch if not each.settled])
            except StoreError as error:
                self._report.failed(error)
                if self._gave_up(error.fault):
                    return
            else:
                self._report.committed(time.monotonic() - begun)
                with self._changed:
                    self._batch, self._fault, self._pause = (), None, _FIRST_PAUSE
                return

    def _gave_up(self, fault: StoreFault, until: float | None = None) -> bool:
        """Make the best of a store that fails, by refusing all `until` then: whether the batch is done with."""
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        if self._awaited:
            with self._changed:
                refused = [*self._batch, *self._waiting]
                self._waiting.clear()
                self._waiting_bytes = 0
                self._batch, self._fault, self._retry_at = (), fault, until or time.monotonic() + pause
            self._refuse([each for each in refused if not each.settled], fault)
            return True
        if not self._closing.wait(pause):
            return False
        left = self._last_moment - time.monotonic()
        if left > 0:
            time.sleep(min(pause, left))
            return False
        with self._changed:
            refused, self._batch = self._batch, ()
        self._refuse([each for each in refused if not each.settled], STOPPING)
        return True

    def _write(self, entries: Sequence[Entry]) -> None:
        """Write `entries`; of those that the store takes not at all, only these are refused.

        Raises:
            StoreError: when the store fails.
        """
        try:
            if self._folder is not None and (images := [image for each in entries for image in each.converted.images]):
                folder = self._folder
                _told(lambda: folder.write(images))
            self._store.write([rows for each in entries for rows in each.converted.rows])
        except SettingsError as error:
            # Somebody has put another store in the place of this one.
            raise StoreError(StoreFault.FAILED, str(error)) from None
        except Exception as error:
            if isinstance(error, StoreError) and error.fault is not StoreFault.REJECTED:
                raise
            if len(entries) <= 1:
                # What is not an error of the store is one of this program; its trace is wanted.
                known = isinstance(error, StoreError)
                _logger.error("an inference cannot be recorded", extra={"reason": str(error)}, exc_info=not known)
                self._refuse(entries, StoreFault.REJECTED)
                return
            middle = len(entries) // 2
            self._write(entries[:middle])
            self._write(entries[middle:])
            return
        self._report.recorded(sum(len(each.converted.rows) for each in entries))
        for entry in entries:
            entry.settle(None)

    def _refuse(self, entries: Sequence[Entry], reason: str) -> None:
        if not entries:
            return
        self._report.dropped(reason, len(entries))
        for entry in entries:
            entry.settle(not_recorded(reason))
        if reason == STOPPING:
            self._report.lost(len(entries))

    def _delete(self) -> None:
        self._busy_since = time.monotonic()
        try:
            self._retention.step()
        except StoreError as error:
            self._report.failed(error)
        except OSError as error:
            _logger.error("an image that had its time cannot be deleted", extra={"reason": str(error)})
        with self._changed:
            # While deleting hung, all were refused until it would end.
            if self._retry_at == float("inf"):
                self._retry_at = 0.0

    def _watch(self) -> None:
        """Refuse what waits for a disk that does not come back."""
        while not self._closing.wait(self._longest_write / 10):
            with self._changed:
                since = self._busy_since if self._batch or self._waiting else None
                stuck = since is not None and time.monotonic() - since > self._longest_write
            if stuck:
                self._report.failed(StoreError(StoreFault.FAILED, "a write takes longer than it may"))
                self._gave_up(StoreFault.FAILED, until=float("inf"))


def _told(write: Callable[[], None]) -> None:
    """Write files, and say of a failure what a store would.

    Raises:
        StoreError: for whatever the file system has against it.
    """
    try:
        write()
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise StoreError(StoreFault.FULL if full else StoreFault.FAILED, str(error)) from None
