"""A store that is told how to fail."""

import threading
from collections.abc import Collection, Sequence

from app.recording.rows import Rows
from app.recording.store import StoreError, StoreFault


class MemoryStore:
    """Keeps rows in a list.

    Attributes:
        fault: why it refuses to open and to write, None while it does not.
        poison: a model whose inferences it does not take.
        write_error: what writing raises besides, if anything.
        delete_error: what deleting raises, if anything.
        gate: writes wait while it is closed.
        deleting: deleting waits while it is closed.
        batches: how many requests were written together each time.
    """

    def __init__(self) -> None:
        self.fault: StoreFault | None = None
        self.poison = ""
        self.gate = threading.Event()
        self.gate.set()
        self.deleting = threading.Event()
        self.deleting.set()
        self.write_error: Exception | None = None
        self.delete_error: Exception | None = None
        self.reached = threading.Event()
        self.deleting_begun = threading.Event()
        self.failed = threading.Semaphore(0)
        self.rows: list[Rows] = []
        self.batches: list[int] = []
        self.deleted: list[int] = []
        self.in_use: set[str] = set()
        self.forgotten: list[str] = []
        self.closed = False

    def open(self) -> None:
        self._check()

    def write(self, rows: Sequence[Rows]) -> None:
        self.reached.set()
        assert self.gate.wait(60)
        self._check()
        if self.write_error is not None:
            raise self.write_error
        if any(each.inference.model == self.poison for each in rows):
            raise StoreError(StoreFault.REJECTED, "poison")
        self.rows += rows
        self.batches.append(len(rows))

    def delete_before(self, started: int, most: int) -> int:
        self.deleting_begun.set()
        assert self.deleting.wait(60)
        if self.delete_error is not None:
            raise self.delete_error
        old = [each for each in self.rows if each.inference.started < started][:most]
        self.rows = [each for each in self.rows if each not in old]
        self.deleted.append(len(old))
        return len(old)

    def images_since(self, digests: Collection[str], started: int) -> Collection[str]:
        return self.in_use & set(digests)

    def forget_images(self, digests: Collection[str]) -> None:
        self.forgotten += digests

    def close(self) -> None:
        self.closed = True

    def _check(self) -> None:
        if self.fault is not None:
            self.failed.release()
            raise StoreError(self.fault, "as told")
