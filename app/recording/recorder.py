"""Recording as the engine knows it: a keeper of inferences."""

import logging
from concurrent.futures import Future

from app.engine.events import InferenceEvent
from app.recording.conversion import Conversion
from app.recording.entry import Entry, not_recorded
from app.recording.report import UNWRITABLE, Report
from app.recording.writer import Writer

__all__ = ("Recorder", "sampled")

_logger = logging.getLogger(__name__)
_ID_END = 8


def sampled(event_id: str, fraction: float) -> bool:
    """Whether an event is among a sample of `fraction` (0..1). A larger sample has all that a smaller one has."""
    return int(event_id[-_ID_END:], 16) < fraction * 16**_ID_END


class Recorder:
    """Records every inference, once, whatever its protocol and its end.

    Args:
        conversion: says what is written of an inference.
        writer: writes it.
        report: told of what is not written.
        fraction: of all requests, 0..1; the others are left out.
        acknowledging: whether answers wait until they are recorded. What cannot be recorded is then not answered.
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
            SettingsError: when it was written by a later version.
            StoreError: when it cannot be opened, while answers wait for it.
        """
        self._writer.start()

    @property
    def refusing(self) -> str:
        """Why nothing would be answered that comes now, empty where answers do not wait for the store, or it works."""
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
        """Record what waits, for `timeout` seconds at the longest, and close the store."""
        self._writer.close(timeout)

    def _put(self, event: InferenceEvent, kept: "Future[None] | None") -> str | None:
        try:
            converted = self._conversion(event)
        except Exception:
            _logger.exception("an inference cannot be recorded")
            return UNWRITABLE
        return self._writer.put(Entry(converted, kept))
