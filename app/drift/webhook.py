"""Tells somebody's address that a model has drifted, or no longer does."""

import logging
import queue
import threading
from collections.abc import Callable, Sequence

import httpx
import msgspec

from app.drift.monitor import Window
from app.drift.result import Tested

__all__ = ("Alert", "Webhook", "alert_of")

_logger = logging.getLogger(__name__)

_MOST_WAITING = 64
_BACKOFF = (1.0, 2.0, 4.0, 8.0)
_TIMEOUT = 5.0


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """What is posted, as JSON.

    Attributes:
        model: whose images.
        drifted: whether they have drifted; false when they no longer do.
        started: seconds since 1970, when the first image of the window came.
        ended: when the last did.
        images: of the window.
        alpha: the chance of an alarm where nothing has changed.
        similarity: the mean to the baseline.
        baseline_similarity: the baseline's own.
        tests: all of them.
    """

    model: str
    drifted: bool
    started: float
    ended: float
    images: int
    alpha: float
    similarity: float
    baseline_similarity: float
    tests: Sequence[Tested]


def alert_of(window: Window) -> Alert:
    """What there is to say of a window."""
    found = window.comparison
    return Alert(
        model=window.model,
        drifted=found.drifted,
        started=window.started,
        ended=window.ended,
        images=found.production,
        alpha=found.alpha,
        similarity=found.production_similarity,
        baseline_similarity=found.baseline_similarity,
        tests=found.tests,
    )


class Webhook:
    """Posts alerts in a thread of its own, one after the other, each a few times until it is taken.

    Args:
        url: where to.
        told: how each ended: "sent", "failed" or "dropped".
        backoff: seconds to wait before each further try.
    """

    def __init__(self, url: str, told: Callable[[str], None], backoff: Sequence[float] = _BACKOFF) -> None:
        self._url = url
        self._told = told
        self._backoff = backoff
        self._waiting: queue.SimpleQueue[Alert | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        # httpx tells every address that it asks, and this one may have a secret in it.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        self._thread = threading.Thread(target=self._run, name="drift-webhook", daemon=True)
        self._thread.start()

    def send(self, alert: Alert) -> None:
        """Send an alert, some time; never blocks."""
        if self._waiting.qsize() >= _MOST_WAITING:
            self._told("dropped")
        else:
            self._waiting.put(alert)

    def close(self) -> None:
        """Give up what waits, and end."""
        self._closing.set()
        self._waiting.put(None)
        self._thread.join(_TIMEOUT)

    def _run(self) -> None:
        with httpx.Client(timeout=_TIMEOUT, trust_env=False) as client:
            while (alert := self._waiting.get()) is not None and not self._closing.is_set():
                self._told("sent" if self._sent(client, alert) else "failed")

    def _sent(self, client: httpx.Client, alert: Alert) -> bool:
        body, reason = msgspec.json.encode(alert), ""
        for wait in (0.0, *self._backoff):
            if self._closing.wait(wait):
                return False
            try:
                response = client.post(self._url, content=body, headers={"content-type": "application/json"})
            except Exception as error:  # noqa: BLE001 - whatever it is, the next alert is sent all the same
                reason = type(error).__name__
                continue
            if response.is_success:
                return True
            reason = f"status {response.status_code}"
        # The address may have a secret in it, and is not told.
        _logger.warning("the drift webhook did not take an alert for %s: %s", alert.model, reason)
        return False
