"""What a store of recordings has to do, and what may go wrong with one."""

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Protocol

from app.recording.rows import Rows

__all__ = ("Store", "StoreError", "StoreFault")


class StoreFault(StrEnum):
    """Why something could not be written, as senders and metrics are told."""

    FULL = "full"
    LOCKED = "locked"
    DAMAGED = "damaged"
    UNREACHABLE = "unreachable"
    REJECTED = "rejected"
    FAILED = "failed"


class StoreError(Exception):
    """A store that does not do what it should.

    Args:
        fault: the kind of failure.
        message: a sentence for the operator; nothing that came from an address but what may be shown of it.
    """

    def __init__(self, fault: StoreFault, message: str) -> None:
        self.fault = fault
        super().__init__(message)


class Store(Protocol):
    """Keeps rows. All methods are called from one thread, and raise `StoreError`."""

    def open(self) -> None:
        """Connect, and bring the tables up to date. Called again after it has failed.

        Raises:
            SettingsError: when the tables are newer than this program.
        """
        ...

    def write(self, rows: Sequence[Rows]) -> None:
        """Write `rows`, all of them or none; they are kept once this has returned. What is there already stays."""
        ...

    def delete_before(self, started: int, most: int) -> int:
        """Delete inferences that began before `started`, in microseconds since 1970, the oldest first.

        Args:
            started: those that began later stay.
            most: at most so many.

        Returns:
            How many are gone.
        """
        ...

    def images_since(self, digests: Collection[str], started: int) -> Collection[str]:
        """Those of `digests` that an inference which began at `started` or later has."""
        ...

    def forget_images(self, digests: Collection[str]) -> None:
        """Note that the files of `digests` are kept no more."""
        ...

    def close(self) -> None:
        """Let go of it; raises nothing."""
        ...
