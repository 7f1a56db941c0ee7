"""A request that waits to be recorded, and the client's error when recording fails."""

from concurrent.futures import Future, InvalidStateError
from contextlib import suppress

from app.recording.recording_metrics import BEHIND, STOPPING, UNWRITABLE
from app.recording.row_converter import RequestRows
from app.recording.stores.store import StoreFault
from tasks.inference.error import ErrorKind, InferenceError

__all__ = ("PendingRequest", "not_recorded")

_REASONS = {
    BEHIND: "its store does not keep up",
    STOPPING: "the server is stopping",
    UNWRITABLE: "it cannot be converted for the store",
    StoreFault.FULL: "its store is full",
    StoreFault.LOCKED: "its store is locked",
    StoreFault.DAMAGED: "its store is damaged",
    StoreFault.UNREACHABLE: "its store cannot be reached",
    StoreFault.REJECTED: "its store rejected it",
    StoreFault.FAILED: "its store failed",
}


def not_recorded(reason: str) -> InferenceError:
    """Return the error for a client whose inference was not recorded."""
    return InferenceError(ErrorKind.MODEL_NOT_READY, f"The inference could not be recorded: {_REASONS[reason]}")


class PendingRequest:
    """A request that waits to be written.

    Args:
        request_rows: its rows and images.
        recorded: completes when the request is written; None when no client waits for it.
    """

    __slots__ = ("done", "recorded", "request_rows", "size")

    def __init__(self, request_rows: RequestRows, recorded: "Future[None] | None") -> None:
        self.request_rows = request_rows
        self.recorded = recorded
        self.size = request_rows.size
        self.done = False

    def complete(self, error: InferenceError | None) -> None:
        """Report that the request was written, or failed with `error`. The waiting client may have disconnected."""
        self.done = True
        if self.recorded is None:
            return
        with suppress(InvalidStateError):
            if error is None:
                self.recorded.set_result(None)
            else:
                self.recorded.set_exception(error)
