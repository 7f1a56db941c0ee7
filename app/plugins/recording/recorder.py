"""Record the inferences of the engine."""

import logging
from concurrent.futures import Future
from dataclasses import dataclass

from app.core.engine.request_context import RequestContext
from app.plugins.recording.inference import Selection
from app.plugins.recording.inference_query import TRIAL
from app.plugins.recording.recording_metrics import UNWRITABLE, RecordingMetrics, not_recorded
from app.plugins.recording.row_converter import RowConverter
from app.plugins.recording.rules import RuleSelector
from app.plugins.recording.writer import Writer
from tasks.inference.error import ErrorKind

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Recorder:
    """Record every inference once, for every protocol and outcome."""

    row_converter: RowConverter
    writer: Writer  # decides whether answers wait for it
    metrics: RecordingMetrics  # counts requests that are not recorded
    select: RuleSelector

    @property
    def unavailable_reason(self) -> str:
        """The error that every request gets now; empty if the store works or answers do not wait for it."""
        fault = self.writer.unavailable_reason
        return "" if fault is None else str(not_recorded(fault))

    def record(self, event: RequestContext, /) -> "Future[None] | None":
        selection = self.select(event)
        return None if selection is None else self.record_as(event, selection)

    def record_as(self, event: RequestContext, selection: Selection) -> "Future[None] | None":
        """Record a finished request for this reason; a trial with the reason ``trial``, unless its user stopped it."""
        if event.trial and event.outcome is ErrorKind.CANCELLED:
            return None
        if event.trial:
            selection = Selection(reason=TRIAL, probability=selection.probability)
        recorded: Future[None] | None = Future() if self.writer.acknowledge else None
        try:
            request = self.row_converter(event, selection)
        except Exception:
            _logger.exception("an inference cannot be recorded")
            reason = UNWRITABLE
        else:
            request.recorded = recorded
            reason = self.writer.submit(request)
        if reason is not None:
            self.metrics.dropped(reason)
            if recorded is not None:
                recorded.set_exception(not_recorded(reason))
        return recorded

    def close(self, timeout: float) -> None:
        """Record the waiting requests, for at most `timeout` seconds, and close the store."""
        self.writer.close(timeout)
