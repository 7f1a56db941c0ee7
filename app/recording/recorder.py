"""Record the inferences of the engine."""

import logging
from concurrent.futures import Future

from app.engine.events import InferenceEvent
from app.recording.conversion import Conversion
from app.recording.entry import Entry, not_recorded
from app.recording.report import UNWRITABLE, Report
from app.recording.writer import Writer

__all__ = ("Recorder", "sampled")

_logger = logging.getLogger(__name__)
_SAMPLED_DIGITS = 8


def sampled(event_id: str, fraction: float) -> bool:
    """Return whether an event is in a sample of `fraction` (0..1). A larger sample includes every smaller one."""
    return int(event_id[-_SAMPLED_DIGITS:], 16) < fraction * 16**_SAMPLED_DIGITS


class Recorder:
    """Record every inference once, for every protocol and outcome.

    Args:
        conversion: converts an inference into rows.
        writer: writes the rows.
        report: counts requests that are not recorded.
        fraction: share of requests to record, 0..1.
        acknowledging: whether answers wait until they are recorded. A request that cannot be recorded then fails.
    """

    def __init__(
        self, conversion: Conversion, writer: Writer, report: Report, fraction: float, *, acknowledging: bool
    ) -> None:
        self._conversion = conversion
        self._writer = writer
        self._report = report
        self._fraction = fraction
        self._acknowledging = acknowledging

    def start(self) -> None:
        """Open the store.

        Raises:
            SettingsError: when a later version wrote the store.
            StoreError: when the store cannot be opened and answers wait for it.
        """
        self._writer.start()

    @property
    def refusing(self) -> str:
        """The error that every request gets now; empty if the store works or answers do not wait for it."""
        fault = self._writer.refusing if self._acknowledging else None
        return "" if fault is None else str(not_recorded(fault))

    def keep(self, event: InferenceEvent, /) -> "Future[None] | None":
        if not sampled(event.id, self._fraction):
            return None
        kept: Future[None] | None = Future() if self._acknowledging else None
        reason = self._put(event, kept)
        if reason is None:
            return kept
        self._report.dropped(reason)
        if kept is not None:
            kept.set_exception(not_recorded(reason))
        return kept

    def close(self, timeout: float) -> None:
        """Record the waiting requests, for at most `timeout` seconds, and close the store."""
        self._writer.close(timeout)

    def _put(self, event: InferenceEvent, kept: "Future[None] | None") -> str | None:
        try:
            converted = self._conversion(event)
        except Exception:
            _logger.exception("an inference cannot be recorded")
            return UNWRITABLE
        return self._writer.put(Entry(converted, kept))
