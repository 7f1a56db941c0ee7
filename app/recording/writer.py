"""The thread that writes recordings, in batches."""

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

_MAX_REQUESTS = 256
_MAX_ROWS = 2048
_MAX_BYTES = 256 * 1024 * 1024
_BETWEEN_COMMITS = 0.02
_BETWEEN_COMMITS_UNAWAITED = 0.1
_FIRST_PAUSE = 0.2
_MAX_PAUSE = 5.0
_WRITE_TIMEOUT = 10.0

_logger = logging.getLogger(__name__)


class Writer:
    """Write requests in batches, and delete expired recordings in between.

    If clients wait for writes, a failed store rejects new requests at once, and is tried again after a pause with later
    ones. If no client waits, the writer retries with the queued requests.

    Args:
        store: the store; only the thread of this writer uses it.
        folder: the folder for images, if they are stored.
        retention: deletes expired recordings.
        report: receives metrics and log records.
        awaited: whether clients wait until their requests are written.
        most_waiting: maximum number of queued requests.
        longest_write: timeout in seconds after which waiting clients get an error, even if the write succeeds later.
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
        longest_write: float = _WRITE_TIMEOUT,
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
        # Start of the current operation of the store or the folder; None while they are idle.
        self._busy_since: float | None = None
        self._fault: StoreFault | None = None
        self._retry_at = 0.0
        self._pause = _FIRST_PAUSE
        self._closing = threading.Event()
        self._close_deadline = 0.0
        self._opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
        report.watch(lambda: len(self._waiting))

    def start(self) -> None:
        """Open the store and start the thread.

        Raises:
            SettingsError: when a later version wrote the store.
            StoreError: when the store cannot be opened and clients wait for writes; otherwise it is tried again later.
        """
        self._thread.start()
        self._opened.result()
        if self._awaited:
            threading.Thread(target=self._watch, name="recording-watch", daemon=True).start()

    @property
    def refusing(self) -> str | None:
        """The reason to reject new requests now, or None."""
        if self._awaited and self._fault is not None and time.monotonic() < self._retry_at:
            return self._fault
        return None

    def put(self, entry: Entry) -> str | None:
        """Queue a request without blocking.

        Returns:
            The reason why it was rejected, or None if it was queued.
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
        """Write the queued requests, for at most `timeout` seconds, and stop the thread."""
        self._close_deadline = time.monotonic() + timeout
        with self._changed:
            self._closing.set()
            self._changed.notify()
        self._thread.join(timeout + 1)
        with self._changed:
            left = [*self._batch, *self._waiting]
            self._waiting.clear()
        self._refuse([entry for entry in left if not entry.settled], STOPPING)

    def _refusal(self, entry: Entry) -> str | None:
        if self._closing.is_set():
            return STOPPING
        if (fault := self.refusing) is not None:
            return fault
        full = self._waiting_bytes + entry.size > _MAX_BYTES
        return BEHIND if len(self._waiting) >= self._most_waiting or (full and self._waiting) else None

    def _run(self) -> None:
        try:
            self._open()
        except Exception as error:  # noqa: BLE001  `start` raises it
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
                # The thread must survive: clients would otherwise wait forever.
                _logger.exception("recording went wrong")
                self._report.failed(StoreError(StoreFault.FAILED, str(error)))
                with self._changed:
                    left, self._batch, self._retry_at = self._batch, (), 0.0
                self._refuse([entry for entry in left if not entry.settled], StoreFault.FAILED)
        self._store.close()

    def _open(self) -> None:
        try:
            if self._folder is not None:
                _convert_os_errors(self._folder.open)
            self._store.open()
        except StoreError as error:
            if self._awaited:
                raise
            self._report.failed(error)

    def _take(self) -> Sequence[Entry] | None:
        """Return the next batch; it is empty when it is time to delete, and None at shutdown."""
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
        # A commit costs as much as a dozen inferences. Under load, requests within this interval share a commit.
        interval = _BETWEEN_COMMITS if self._awaited else _BETWEEN_COMMITS_UNAWAITED
        self._closing.wait(max(0.0, self._batch_begun + interval - time.monotonic()))
        with self._changed:
            batch: list[Entry] = []
            rows = 0
            while self._waiting and len(batch) < _MAX_REQUESTS and rows < _MAX_ROWS:
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
                self._write([entry for entry in batch if not entry.settled])
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
        """Handle a failed store: reject all requests `until` then, or pause. Return whether the batch is finished."""
        pause, self._pause = self._pause, min(2 * self._pause, _MAX_PAUSE)
        if self._awaited:
            with self._changed:
                refused = [*self._batch, *self._waiting]
                self._waiting.clear()
                self._waiting_bytes = 0
                self._batch, self._fault, self._retry_at = (), fault, until or time.monotonic() + pause
            self._refuse([entry for entry in refused if not entry.settled], fault)
            return True
        if not self._closing.wait(pause):
            return False
        left = self._close_deadline - time.monotonic()
        if left > 0:
            time.sleep(min(pause, left))
            return False
        with self._changed:
            refused, self._batch = self._batch, ()
        self._refuse([entry for entry in refused if not entry.settled], STOPPING)
        return True

    def _write(self, entries: Sequence[Entry]) -> None:
        """Write `entries`. Bisect a rejected batch, so that only the invalid entries fail.

        Raises:
            StoreError: when the store fails.
        """
        try:
            if self._folder is not None and (
                images := [image for entry in entries for image in entry.converted.images]
            ):
                folder = self._folder
                _convert_os_errors(lambda: folder.write(images))
            self._store.write([rows for entry in entries for rows in entry.converted.rows])
        except SettingsError as error:
            # Another program has replaced the store.
            raise StoreError(StoreFault.FAILED, str(error)) from None
        except Exception as error:
            if isinstance(error, StoreError) and error.fault is not StoreFault.REJECTED:
                raise
            if len(entries) <= 1:
                # Log the traceback of other errors: they are bugs in this program.
                known = isinstance(error, StoreError)
                _logger.error("an inference cannot be recorded", extra={"reason": str(error)}, exc_info=not known)
                self._refuse(entries, StoreFault.REJECTED)
                return
            middle = len(entries) // 2
            self._write(entries[:middle])
            self._write(entries[middle:])
            return
        self._report.recorded(sum(len(entry.converted.rows) for entry in entries))
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
            # A hung deletion rejected all requests; accept them again.
            if self._retry_at == float("inf"):
                self._retry_at = 0.0

    def _watch(self) -> None:
        """Fail the waiting requests when an operation exceeds its timeout."""
        while not self._closing.wait(self._longest_write / 10):
            with self._changed:
                since = self._busy_since if self._batch or self._waiting else None
                stuck = since is not None and time.monotonic() - since > self._longest_write
            if stuck:
                self._report.failed(StoreError(StoreFault.FAILED, "a write takes longer than it may"))
                self._gave_up(StoreFault.FAILED, until=float("inf"))


def _convert_os_errors(write: Callable[[], None]) -> None:
    """Write files, and convert an `OSError`.

    Raises:
        StoreError: for every error of the file system.
    """
    try:
        write()
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise StoreError(StoreFault.FULL if full else StoreFault.FAILED, str(error)) from None
