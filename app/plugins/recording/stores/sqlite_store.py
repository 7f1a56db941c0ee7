"""A store in an SQLite file, in WAL mode. Every commit reaches the disk before it is acknowledged."""

import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import Connection, create_engine, event, insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from app.core.settings.server import SettingsError
from app.plugins.recording.stores.migrations import NEWEST_VERSION, upgrade
from app.plugins.recording.stores.rows import Rows
from app.plugins.recording.stores.store import ResultT, Store, StoreError, StoreFault
from app.plugins.recording.stores.tables import schema_version

_BUSY_TIMEOUT = 3.0
_UPGRADE_MILLISECONDS = 6 * 3600 * 1000
_FIRST_ANALYSIS = 1000
_MAX_BETWEEN_ANALYSES = 1_000_000

_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA cache_size = -16384",
    "PRAGMA analysis_limit = 400",
)

_FAULTS = {
    sqlite3.SQLITE_FULL: StoreFault.FULL,
    sqlite3.SQLITE_BUSY: StoreFault.LOCKED,
    sqlite3.SQLITE_LOCKED: StoreFault.LOCKED,
    sqlite3.SQLITE_CORRUPT: StoreFault.DAMAGED,
    sqlite3.SQLITE_NOTADB: StoreFault.DAMAGED,
    sqlite3.SQLITE_CONSTRAINT: StoreFault.REJECTED,
    sqlite3.SQLITE_TOOBIG: StoreFault.REJECTED,
    sqlite3.SQLITE_MISMATCH: StoreFault.REJECTED,
}


class SqliteStore(Store):
    """A store in one file, which several processes may share. They wait `busy_timeout` seconds for one another."""

    def __init__(self, file: Path, busy_timeout: float = _BUSY_TIMEOUT) -> None:
        self._file = file
        self._busy_timeout = busy_timeout
        self._engine = create_engine(
            "sqlite://", creator=self._connect_file, poolclass=NullPool, pool_reset_on_return=None
        )
        event.listen(self._engine, "begin", _begin_immediate)
        super().__init__(self._engine.dialect, insert)
        self._connection: Connection | None = None
        self._inode = 0
        # Whether the last write failed. Part of it may have been written.
        self._last_write_failed = False
        self._written = 0
        self._next_analysis = _FIRST_ANALYSIS

    def open(self) -> None:
        with self._converted_errors():
            self._connect()

    def write(self, rows: Sequence[Rows]) -> None:
        super().write(rows)
        self._last_write_failed = False
        self._written += len(rows)
        if self._written >= self._next_analysis:
            # The rows are already committed, so a failure here does not matter.
            with suppress(StoreError):
                self._analyse()

    def close(self) -> None:
        if self._connection is None:
            return
        with suppress(StoreError):
            self._analyse()
        self._disconnect()

    def _number(self, connection: Connection, rows: Sequence[Rows]) -> Sequence[tuple[int, Rows]]:
        if self._last_write_failed:
            existing = self._existing(connection, rows)
            rows = [row for row in rows if row.recording["id"] not in existing]
        (last_number,) = connection.connection.cursor().execute("SELECT max(number) FROM recordings").fetchone()
        return list(enumerate(rows, (last_number or 0) + 1))

    def transaction(self, work: Callable[[Connection], ResultT]) -> ResultT:
        with self._converted_errors():
            connection = self._get_connection()
            with connection.begin():
                return work(connection)

    def _get_connection(self) -> Connection:
        # Reopen if the file was moved or deleted: writes to the open file would be lost.
        with suppress(OSError):
            if self._connection is not None and self._file.stat().st_ino == self._inode:
                return self._connection
        self._disconnect()
        return self._connect()

    def _connect(self) -> Connection:
        connection = self._engine.connect()
        try:
            with connection.begin():
                upgrade(connection)
            connection.connection.cursor().execute(f"PRAGMA busy_timeout = {int(self._busy_timeout * 1000)}")
        except BaseException:
            connection.close()
            raise
        self._connection, self._inode = connection, self._file.stat().st_ino
        return connection

    def _connect_file(self) -> sqlite3.Connection:
        # Use an absolute path, because SQLite parses a name that begins with "file:" as a URI.
        connection = sqlite3.connect(self._file.absolute(), timeout=self._busy_timeout, isolation_level=None)
        try:
            # Check that the file is not the database of another program, before any change to it.
            names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if names and schema_version.name not in names:
                raise SettingsError(f"{self._file} is a database of something else than recordings")
            for pragma in _PRAGMAS:
                connection.execute(pragma)
            if not names or connection.execute("SELECT version FROM inference_schema").fetchone() < (NEWEST_VERSION,):
                # Another server may be upgrading the store, which takes minutes.
                connection.execute(f"PRAGMA busy_timeout = {_UPGRADE_MILLISECONDS}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _analyse(self) -> None:
        """Update the statistics of the planner. Without them, a query with two filters may take minutes."""
        self._next_analysis = self._written + min(max(self._written, _FIRST_ANALYSIS), _MAX_BETWEEN_ANALYSES)
        self.transaction(lambda connection: connection.exec_driver_sql("ANALYZE"))

    @contextmanager
    def _converted_errors(self) -> Generator[None]:
        try:
            yield
        except (DBAPIError, sqlite3.Error, OverflowError, UnicodeError, OSError) as error:
            cause = (error.orig if isinstance(error, DBAPIError) else None) or error
            fault = _classify(cause)
            self._last_write_failed = True
            if fault in (StoreFault.DAMAGED, StoreFault.FAILED):
                self._disconnect()
            raise StoreError(fault, f"{self._file}: {cause}") from None


def _begin_immediate(connection: Connection) -> None:
    connection.connection.cursor().execute("BEGIN IMMEDIATE")


def _classify(error: BaseException) -> StoreFault:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        return _FAULTS.get(code & 0xFF, StoreFault.FAILED)
    is_value = isinstance(error, sqlite3.ProgrammingError | OverflowError | UnicodeError)
    return StoreFault.REJECTED if is_value else StoreFault.FAILED
