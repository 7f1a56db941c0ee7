"""A request that waits to be recorded, and the client's error when recording fails."""

from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress

import msgspec

from app.recording.images import ImageFile
from app.recording.recording_metrics import BEHIND, STOPPING, UNWRITABLE
from app.recording.stores.rows import Rows
from app.recording.stores.store import StoreFault
from tasks.inference.error import ErrorKind, InferenceError

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


class PendingRequest(msgspec.Struct, kw_only=True):
    """A request that waits to be written: one row for each sample with a result, or a single row if there is none.

    Attributes:
        rows: at least one.
        images: the image files to store with the rows.
        recorded: completes when the request is written; None when no client waits for it.
        done: whether it was written, or has failed.
        size: the approximate size in bytes.
    """

    rows: Sequence[Rows]
    images: Sequence[ImageFile]
    recorded: "Future[None] | None" = None
    done: bool = False
    size: int = 0

    def __post_init__(self) -> None:
        self.size = sum(row.size for row in self.rows) + sum(len(image.data) for image in self.images)

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
