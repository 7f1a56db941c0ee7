"""The thread that writes recordings, in batches."""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future

from app.core.settings.server import SettingsError
from app.plugins.recording.images import ImageFolder
from app.plugins.recording.recording_metrics import BEHIND, STOPPING, RecordingMetrics, not_recorded
from app.plugins.recording.retention import Retention
from app.plugins.recording.row_converter import PendingRequest
from app.plugins.recording.stores.store import Store, StoreError, StoreFault

_MAX_REQUESTS = 256
_MAX_ROWS = 2048
_MAX_BYTES = 256 * 1024 * 1024
_COMMIT_INTERVAL = 0.02
_UNACKNOWLEDGED_COMMIT_INTERVAL = 0.1
_FIRST_PAUSE = 0.2
_MAX_PAUSE = 5.0
_WRITE_TIMEOUT = 10.0

_logger = logging.getLogger(__name__)


class Writer:
    """Write requests in batches, and delete expired recordings in between.

    If clients wait for writes, a failure rejects all requests, and the writer tries the store again after a pause.
    Otherwise the writer retries with the queued requests.

    Args:
        store: the store; only the thread of this writer uses it.
        folder: the folder for images, if they are stored.
        retention: deletes expired recordings.
        metrics: receives metrics and log records.
        acknowledge: whether clients wait until their requests are written. A request that cannot be written then fails.
        max_queued: maximum number of queued requests.
        write_timeout: timeout in seconds after which waiting clients get an error, even if the write succeeds later.
    """

    def __init__(
        self,
        store: Store,
        folder: ImageFolder | None,
        retention: Retention,
        metrics: RecordingMetrics,
        *,
        acknowledge: bool,
        max_queued: int,
        write_timeout: float = _WRITE_TIMEOUT,
    ) -> None:
        self._store = store
        self._folder = folder
        self._retention = retention
        self._metrics = metrics
        self.acknowledge = acknowledge
        self._max_queued = max_queued
        self._write_timeout = write_timeout
        self._changed = threading.Condition()
        self._queue: deque[PendingRequest] = deque()
        self._queued_bytes = 0
        self._batch: Sequence[PendingRequest] = ()
        self._batch_started = 0.0
        # Start of the current operation of the store or the folder; None while they are idle.
        self._busy_since: float | None = None
        self._fault: StoreFault | None = None
        self._retry_at = 0.0
        self._pause = _FIRST_PAUSE
        self._closing = threading.Event()
        self._close_deadline = 0.0
        self._opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
        metrics.watch_queue(lambda: len(self._queue))

    def start(self) -> None:
        """Open the store and start the thread.

        Raise SettingsError when a later version wrote the store. Raise StoreError when the store cannot be opened and
        clients wait for writes; otherwise it is tried again later.
        """
        self._thread.start()
        self._opened.result()
        if self.acknowledge:
            threading.Thread(target=self._watch_timeouts, name="recording-watch", daemon=True).start()

    @property
    def unavailable_reason(self) -> str | None:
        """The reason to reject new requests now, or None."""
        if self.acknowledge and self._fault is not None and time.monotonic() < self._retry_at:
            return self._fault
        return None

    def submit(self, request: PendingRequest) -> str | None:
        """Queue a request without blocking.

        Returns:
            The reason why it was rejected, or None if it was queued.
        """
        with self._changed:
            is_full = self._queued_bytes + request.size > _MAX_BYTES and len(self._queue) > 0
            if self._closing.is_set():
                reason = STOPPING
            elif (reason := self.unavailable_reason) is None and (is_full or len(self._queue) >= self._max_queued):
                reason = BEHIND
            if reason is None:
                self._queue.append(request)
                self._queued_bytes += request.size
                self._changed.notify()
        return reason

    def close(self, timeout: float) -> None:
        """Write the queued requests, for at most `timeout` seconds, and stop the thread."""
        self._close_deadline = time.monotonic() + timeout
        with self._changed:
            self._closing.set()
            self._changed.notify()
        self._thread.join(timeout + 1)
        self._fail_requests(self._take_waiting(), STOPPING)

    def _run(self) -> None:
        try:
            self._open()
        except Exception as error:  # noqa: BLE001  `start` raises it
            self._store.close()
            self._opened.set_exception(error)
            return
        self._opened.set_result(None)
        while (batch := self._next_batch()) is not None:
            try:
                if batch:
                    self._write_batch(batch)
                self._delete_expired()
            except Exception as error:
                # The thread must survive: clients would otherwise wait forever.
                _logger.exception("recording failed unexpectedly")
                self._metrics.failed(StoreError(StoreFault.FAILED, str(error)))
                with self._changed:
                    unfinished, self._batch, self._retry_at = self._batch, (), 0.0
                self._fail_requests(unfinished, StoreFault.FAILED)
            # Drop images and unloaded models now, not when the next request arrives.
            del batch
        self._store.close()

    def _open(self) -> None:
        try:
            if self._folder is not None:
                self._folder.open()
            self._store.open()
        except StoreError as error:
            if self.acknowledge:
                raise
            self._metrics.failed(error)

    def _next_batch(self) -> Sequence[PendingRequest] | None:
        """Return the next batch; it is empty when it is time to delete, and None at shutdown."""
        with self._changed:
            self._busy_since = None
            if not self._queue:
                if self._closing.is_set():
                    return None
                self._changed.wait(self._retention.due)
            if not self._queue:
                return ()
        # A commit costs as much as a dozen inferences. Under load, requests within this interval share a commit.
        interval = _COMMIT_INTERVAL if self.acknowledge else _UNACKNOWLEDGED_COMMIT_INTERVAL
        self._closing.wait(max(0.0, self._batch_started + interval - time.monotonic()))
        with self._changed:
            batch: list[PendingRequest] = []
            rows = 0
            while self._queue and len(batch) < _MAX_REQUESTS and rows < _MAX_ROWS:
                request = self._queue.popleft()
                self._queued_bytes -= request.size
                rows += len(request.rows)
                batch.append(request)
            self._batch, self._batch_started = batch, time.monotonic()
            self._busy_since = self._batch_started
            # After a failure, reject further requests until this attempt ends.
            self._retry_at = float("inf")
        return batch

    def _write_batch(self, batch: Sequence[PendingRequest]) -> None:
        while True:
            started = time.monotonic()
            try:
                self._write([request for request in batch if not request.done])
            except StoreError as error:
                self._metrics.failed(error)
                if self._handle_failure(error.fault):
                    return
            else:
                self._metrics.committed(time.monotonic() - started)
                with self._changed:
                    self._batch, self._fault, self._pause = (), None, _FIRST_PAUSE
                return

    def _handle_failure(self, fault: StoreFault, until: float | None = None) -> bool:
        """Handle a failed store: reject all requests `until` then, or pause. Return whether the batch is finished."""
        pause, self._pause = self._pause, min(2 * self._pause, _MAX_PAUSE)
        if self.acknowledge:
            with self._changed:
                rejected = self._take_waiting()
                self._fault, self._retry_at = fault, until or time.monotonic() + pause
            self._fail_requests(rejected, fault)
            return True
        if not self._closing.wait(pause):
            return False
        remaining_seconds = self._close_deadline - time.monotonic()
        if remaining_seconds > 0:
            time.sleep(min(pause, remaining_seconds))
            return False
        with self._changed:
            rejected, self._batch = self._batch, ()
        self._fail_requests(rejected, STOPPING)
        return True

    def _write(self, requests: Sequence[PendingRequest]) -> None:
        """Write `requests`. Bisect a rejected batch, so that only the invalid requests fail."""
        try:
            if self._folder is not None:
                self._folder.write([image for request in requests for image in request.images])
            self._store.write([rows for request in requests for rows in request.rows])
        except SettingsError as error:
            # Another program has replaced the store.
            raise StoreError(StoreFault.FAILED, str(error)) from None
        except Exception as error:
            if isinstance(error, StoreError) and error.fault is not StoreFault.REJECTED:
                raise
            if len(requests) <= 1:
                # Log the traceback of other errors: they are bugs in this program.
                is_store_error = isinstance(error, StoreError)
                _logger.error(
                    "an inference cannot be recorded", extra={"reason": str(error)}, exc_info=not is_store_error
                )
                self._fail_requests(requests, StoreFault.REJECTED)
                return
            middle = len(requests) // 2
            self._write(requests[:middle])
            self._write(requests[middle:])
            return
        self._metrics.recorded(sum(len(request.rows) for request in requests), len(self._queue))
        for request in requests:
            request.complete(None)

    def _take_waiting(self) -> Sequence[PendingRequest]:
        with self._changed:
            waiting = [*self._batch, *self._queue]
            self._queue.clear()
            self._batch, self._queued_bytes = (), 0
        return waiting

    def _fail_requests(self, requests: Sequence[PendingRequest], reason: str) -> None:
        """Fail the `requests` that are not done."""
        requests = [request for request in requests if not request.done]
        if not requests:
            return
        self._metrics.dropped(reason, len(requests))
        for request in requests:
            request.complete(not_recorded(reason))
        if reason == STOPPING:
            self._metrics.lost_at_shutdown(len(requests))

    def _delete_expired(self) -> None:
        self._busy_since = time.monotonic()
        try:
            self._retention.step()
        except StoreError as error:
            self._metrics.failed(error)
        except OSError as error:
            _logger.error("expired image cannot be deleted", extra={"reason": str(error)})
        with self._changed:
            # A hung deletion rejected all requests; accept them again.
            if self._retry_at == float("inf"):
                self._retry_at = 0.0

    def _watch_timeouts(self) -> None:
        """Fail the waiting requests when an operation exceeds its timeout."""
        while not self._closing.wait(self._write_timeout / 10):
            with self._changed:
                since = self._busy_since if self._batch or self._queue else None
                timed_out = since is not None and time.monotonic() - since > self._write_timeout
            if timed_out:
                self._metrics.failed(StoreError(StoreFault.FAILED, "a write takes longer than it may"))
                self._handle_failure(StoreFault.FAILED, until=float("inf"))
