"""Notify a webhook when drift of a model begins or ends."""

import logging
import queue
import threading
from collections.abc import Callable, Sequence

import httpx
import msgspec

from app.plugins.drift.monitor import DriftWindow

_logger = logging.getLogger(__name__)

_MAX_WAITING = 64
_BACKOFF = (1.0, 2.0, 4.0, 8.0)
_TIMEOUT = 5.0
_HEADERS = {"content-type": "application/json"}


class Webhook:
    """Post alerts one by one in a separate thread, with retries after the seconds of `backoff`.

    `report_outcome` is called with the outcome of each alert: "sent", "failed" or "dropped".
    """

    def __init__(self, url: str, report_outcome: Callable[[str], None], backoff: Sequence[float] = _BACKOFF) -> None:
        self._url, self._report_outcome, self._backoff = url, report_outcome, backoff
        self._waiting: queue.SimpleQueue[DriftWindow | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        # httpx logs every URL, and this one may contain a secret.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        self._thread = threading.Thread(target=self._run, name="drift-webhook", daemon=True)
        self._thread.start()

    def send(self, alert: DriftWindow) -> None:
        """Queue an alert without blocking."""
        if self._waiting.qsize() >= _MAX_WAITING:
            self._report_outcome("dropped")
        else:
            self._waiting.put(alert)

    def close(self) -> None:
        """Discard the queued alerts, and stop the thread."""
        self._closing.set()
        self._waiting.put(None)
        self._thread.join(_TIMEOUT)

    def _run(self) -> None:
        with httpx.Client(timeout=_TIMEOUT, trust_env=False) as client:
            while (alert := self._waiting.get()) is not None and not self._closing.is_set():
                self._report_outcome("sent" if self._post(client, alert) else "failed")

    def _post(self, client: httpx.Client, alert: DriftWindow) -> bool:
        body, reason = msgspec.json.encode(alert), ""
        for wait in (0.0, *self._backoff):
            if self._closing.wait(wait):
                return False
            try:
                # The body of the answer is not read: it may be large, or never end.
                with client.stream("POST", self._url, content=body, headers=_HEADERS) as response:
                    if response.is_success:
                        return True
                    reason = f"status {response.status_code}"
            except Exception as error:  # noqa: BLE001 - an error must not stop later alerts
                reason = type(error).__name__
        # Do not log the URL: it may contain a secret.
        _logger.warning("the drift webhook did not accept an alert for %s: %s", alert.model, reason)
        return False
