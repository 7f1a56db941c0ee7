"""A store in an SQLite file, in WAL mode. Every commit reaches the disk before it is acknowledged."""

import sqlite3
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import Insert, Table, create_engine, insert
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from app.recording.stores.migrations import upgrade
from app.recording.stores.rows import Rows
from app.recording.stores.store import StoreError, StoreFault
from app.recording.stores.tables import inferences, labels, metadata, schema_version
from app.settings.server import SettingsError

_BUSY_TIMEOUT = 3.0
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


def _statement(table: Table) -> str:
    statement: Insert = insert(table)
    return str(statement.compile(dialect=sqlite.dialect(), column_keys=[column.name for column in table.columns]))


_INFERENCES, _METADATA, _LABELS = _statement(inferences), _statement(metadata), _statement(labels)


class SqliteStore:
    """A `Store` in one file, which several processes may share.

    Args:
        file: created if missing.
        busy_timeout: timeout in seconds to wait for another writing process.
    """

    def __init__(self, file: Path, busy_timeout: float = _BUSY_TIMEOUT) -> None:
        self._file = file
        self._busy_timeout = busy_timeout
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        # Whether the last write failed. Part of it may have been written.
        self._last_write_failed = False
        self._written = 0
        self._next_analysis = _FIRST_ANALYSIS

    def open(self) -> None:
        with self._converted_errors():
            self._connect()

    def write(self, rows: Sequence[Rows]) -> None:
        with self._transaction() as connection:
            if self._last_write_failed:
                rows = _not_stored(connection, rows)
            (last_number,) = connection.execute("SELECT coalesce(max(number), 0) FROM inferences").fetchone()
            numbered = list(enumerate(rows, last_number + 1))
            connection.executemany(_INFERENCES, [(number, *row.inference) for number, row in numbered])
            connection.executemany(_METADATA, [(number, *entry) for number, row in numbered for entry in row.metadata])
            connection.executemany(_LABELS, [(number, *label) for number, row in numbered for label in row.labels])
        self._last_write_failed = False
        self._written += len(rows)
        if self._written >= self._next_analysis:
            # The rows are already committed, so a failure here does not matter.
            with suppress(StoreError):
                self._analyse()

    def delete_before(self, started: int, limit: int) -> int:
        with self._transaction() as connection:
            statement = "SELECT number FROM inferences WHERE started < ? ORDER BY started LIMIT ?"
            numbers = connection.execute(statement, (started, limit)).fetchall()
            for table in (metadata, labels, inferences):
                connection.executemany(f"DELETE FROM {table.name} WHERE number = ?", numbers)  # noqa: S608
        return len(numbers)

    def images_since(self, digests: Collection[str], started: int) -> Collection[str]:
        statement = "SELECT 1 FROM inferences WHERE image_kept AND image_digest = ? AND started >= ? LIMIT 1"
        with self._converted_errors():
            connection = self._get_connection()
            return {digest for digest in digests if connection.execute(statement, (digest, started)).fetchone()}

    def mark_images_deleted(self, digests: Collection[str]) -> None:
        statement = "UPDATE inferences SET image_kept = 0 WHERE image_kept AND image_digest = ?"
        with self._transaction() as connection:
            connection.executemany(statement, [(digest,) for digest in digests])

    def close(self) -> None:
        if self._connection is None:
            return
        with suppress(StoreError):
            self._analyse()
        self._disconnect()

    def _get_connection(self) -> sqlite3.Connection:
        # Reopen if the file was moved or deleted: writes to the open file would be lost.
        if self._connection is not None and not self._is_same_file():
            self._disconnect()
        return self._connection or self._connect()

    def _connect(self) -> sqlite3.Connection:
        # Use an absolute path, because SQLite parses a name that begins with "file:" as a URI.
        connection = sqlite3.connect(self._file.absolute(), timeout=self._busy_timeout, isolation_level=None)
        try:
            self._check_owner(connection)
            for pragma in _PRAGMAS:
                connection.execute(pragma)
            engine = create_engine("sqlite://", creator=lambda: connection, poolclass=StaticPool)
            with engine.connect() as upgrading:
                connection.execute("BEGIN IMMEDIATE")
                upgrade(upgrading)
                connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        self._connection, self._inode = connection, self._file.stat().st_ino
        return connection

    def _check_owner(self, connection: sqlite3.Connection) -> None:
        """Check that the file is not the database of another program, before any change to it."""
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if names and schema_version.name not in names:
            raise SettingsError(f"{self._file} is a database of something else than recordings")

    def _is_same_file(self) -> bool:
        with suppress(OSError):
            return self._file.stat().st_ino == self._inode
        return False

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _analyse(self) -> None:
        """Update the statistics of the planner. Without them, a query with two filters may take minutes."""
        self._next_analysis = self._written + min(max(self._written, _FIRST_ANALYSIS), _MAX_BETWEEN_ANALYSES)
        with self._converted_errors():
            self._get_connection().execute("ANALYZE")

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with self._converted_errors():
            connection = self._get_connection()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.rollback()
                raise

    @contextmanager
    def _converted_errors(self) -> Generator[None]:
        """Convert SQLite errors into `StoreError`."""
        try:
            yield
        except (sqlite3.Error, DBAPIError) as error:
            # During migrations, SQLAlchemy wraps the errors of SQLite.
            cause = error.orig if isinstance(error, DBAPIError) else error
            raise self._to_store_error(_classify(cause), cause or error) from None
        except (OverflowError, UnicodeError) as error:
            raise self._to_store_error(StoreFault.REJECTED, error) from None
        except OSError as error:
            raise self._to_store_error(StoreFault.FAILED, error) from None

    def _to_store_error(self, fault: StoreFault, error: BaseException) -> StoreError:
        self._last_write_failed = True
        if fault in (StoreFault.DAMAGED, StoreFault.FAILED):
            self._disconnect()
        return StoreError(fault, f"{self._file}: {error}")


def _not_stored(connection: sqlite3.Connection, rows: Sequence[Rows]) -> Sequence[Rows]:
    statement = "SELECT 1 FROM inferences WHERE id = ?"
    return [row for row in rows if connection.execute(statement, (row.inference.id,)).fetchone() is None]


def _classify(error: BaseException | None) -> StoreFault:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return StoreFault.REJECTED if isinstance(error, sqlite3.ProgrammingError) else StoreFault.FAILED
    return _FAULTS.get(code & 0xFF, StoreFault.FAILED)
