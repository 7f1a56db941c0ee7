"""A store in memory that fails on request."""

import threading
from collections.abc import Callable, Collection, Sequence
from typing import NoReturn

from sqlalchemy import Connection

from app.plugins.recording.stores.rows import Rows
from app.plugins.recording.stores.store import ResultT, Store, StoreError, StoreFault


class MemoryStore(Store):
    """Keep rows in a list, and fail on request."""

    def __init__(self) -> None:
        self.fault: StoreFault | None = None  # with which opening and writing fail
        self.poison = ""  # a model whose inferences are rejected
        self.write_error: Exception | None = None
        self.delete_error: Exception | None = None
        # Writes and deletions wait until these are set.
        self.write_gate, self.delete_gate = threading.Event(), threading.Event()
        self.write_gate.set()
        self.delete_gate.set()
        self.write_started, self.delete_started = threading.Event(), threading.Event()
        self.failed = threading.Semaphore(0)
        self.rows: list[Rows] = []
        self.batches: list[int] = []  # the number of requests in each write
        self.deleted: list[int] = []
        self.in_use: set[str] = set()
        self.forgotten: list[str] = []
        self.closed = False

    def open(self) -> None:
        self._check()

    def write(self, rows: Sequence[Rows]) -> None:
        self.write_started.set()
        assert self.write_gate.wait(60)
        self._check()
        if self.write_error is not None:
            raise self.write_error
        if any(row.recording["model"] == self.poison for row in rows):
            raise StoreError(StoreFault.REJECTED, "poison")
        self.rows += rows
        self.batches.append(len(rows))

    def delete_before(self, started: int, limit: int) -> int:
        self.delete_started.set()
        assert self.delete_gate.wait(60)
        if self.delete_error is not None:
            raise self.delete_error
        old = [index for index, row in enumerate(self.rows) if row.recording["started"] < started][:limit]
        for index in reversed(old):
            del self.rows[index]
        self.deleted.append(len(old))
        return len(old)

    def images_since(self, digests: Collection[str], started: int) -> Collection[str]:
        return self.in_use & set(digests)

    def mark_images_deleted(self, digests: Collection[str]) -> None:
        self.forgotten += digests

    def close(self) -> None:
        self.closed = True

    def _number(self, connection: Connection, rows: Sequence[Rows]) -> NoReturn:
        raise NotImplementedError

    def transaction(self, work: Callable[[Connection], ResultT]) -> NoReturn:
        raise NotImplementedError

    def _check(self) -> None:
        # A test may end the fault as soon as it notices the failure.
        if (fault := self.fault) is not None:
            self.failed.release()
            raise StoreError(fault, "as configured")
