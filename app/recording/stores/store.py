"""The interface of a store of recordings, and its errors."""

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Protocol

from app.recording.stores.rows import Rows


class StoreFault(StrEnum):
    """Why a write failed, for clients and metrics."""

    FULL = "full"
    LOCKED = "locked"
    DAMAGED = "damaged"
    UNREACHABLE = "unreachable"
    REJECTED = "rejected"
    FAILED = "failed"


class StoreError(Exception):
    """A failure of a store.

    Args:
        fault: the kind of failure.
        message: a message for the operator, without secrets from the address.
    """

    def __init__(self, fault: StoreFault, message: str) -> None:
        self.fault = fault
        super().__init__(message)


class Store(Protocol):
    """A store of rows. One thread calls all methods; they raise `StoreError`."""

    def open(self) -> None:
        """Connect and migrate the tables. After a failure it may be called again.

        Raises:
            SettingsError: when the tables are newer than this program.
        """
        ...

    def write(self, rows: Sequence[Rows]) -> None:
        """Write `rows` in one durable transaction. Rows that already exist stay unchanged."""
        ...

    def delete_before(self, started: int, limit: int) -> int:
        """Delete inferences that began before `started`, in microseconds since 1970, the oldest first.

        Args:
            started: start of the period to keep.
            limit: maximum number of inferences to delete.

        Returns:
            The number of deleted inferences.
        """
        ...

    def images_since(self, digests: Collection[str], started: int) -> Collection[str]:
        """Return the `digests` that belong to an inference which began at `started` or later."""
        ...

    def mark_images_deleted(self, digests: Collection[str]) -> None:
        """Record that the files of `digests` were deleted."""
        ...

    def close(self) -> None:
        """Close the store. This never raises."""
        ...
