"""One request that is to be recorded, and what its sender is told when it cannot be."""

from concurrent.futures import Future, InvalidStateError
from contextlib import suppress

from app.recording.conversion import Converted
from app.recording.report import BEHIND, STOPPING, UNWRITABLE
from app.recording.store import StoreFault
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("Entry", "not_recorded")

_SENTENCES = {
    BEHIND: "its store does not keep up",
    STOPPING: "the server is stopping",
    UNWRITABLE: "there is no writing it down",
    StoreFault.FULL: "its store is full",
    StoreFault.LOCKED: "its store is locked",
    StoreFault.DAMAGED: "its store is damaged",
    StoreFault.UNREACHABLE: "its store is out of reach",
    StoreFault.REJECTED: "its store does not take it",
    StoreFault.FAILED: "its store failed",
}


def not_recorded(reason: str) -> InferenceError:
    """What a sender is told whose inference is not recorded."""
    return InferenceError(ErrorKind.MODEL_NOT_READY, f"The inference could not be recorded: {_SENTENCES[reason]}")


class Entry:
    """One request that is to be written.

    Args:
        converted: what of it.
        kept: done when it is written; None when nobody waits for that.
    """

    __slots__ = ("converted", "kept", "settled", "size")

    def __init__(self, converted: Converted, kept: "Future[None] | None") -> None:
        self.converted = converted
        self.kept = kept
        self.size = converted.size
        self.settled = False

    def settle(self, error: InferenceError | None) -> None:
        """It is written, or never will be. Who waited may have left."""
        self.settled = True
        if self.kept is None:
            return
        with suppress(InvalidStateError):
            if error is None:
                self.kept.set_result(None)
            else:
                self.kept.set_exception(error)
