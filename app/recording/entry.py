"""A request that waits to be recorded, and the client's error when recording fails."""

from concurrent.futures import Future, InvalidStateError
from contextlib import suppress

from app.recording.conversion import Converted
from app.recording.report import BEHIND, STOPPING, UNWRITABLE
from app.recording.store import StoreFault
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("Entry", "not_recorded")

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


class Entry:
    """A request that waits to be written.

    Args:
        converted: its rows and images.
        kept: completes when the request is written; None when no client waits for it.
    """

    __slots__ = ("converted", "kept", "settled", "size")

    def __init__(self, converted: Converted, kept: "Future[None] | None") -> None:
        self.converted = converted
        self.kept = kept
        self.size = converted.size
        self.settled = False

    def settle(self, error: InferenceError | None) -> None:
        """Report that the request was written, or failed with `error`. The waiting client may have disconnected."""
        self.settled = True
        if self.kept is None:
            return
        with suppress(InvalidStateError):
            if error is None:
                self.kept.set_result(None)
            else:
                self.kept.set_exception(error)
