"""A store in a file: SQLite, in WAL mode, every commit on the disk before it counts."""

import sqlite3
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import Insert, Table, create_engine, insert
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from app.recording.migrations import upgrade
from app.recording.rows import Rows
from app.recording.store import StoreError, StoreFault
from app.recording.tables import inferences, labels, metadata, schema_version
from app.settings.server import SettingsError

__all__ = ("SqliteStore",)

_PATIENCE = 3.0
_FIRST_ANALYSIS = 1000
_MOST_BETWEEN_ANALYSES = 1_000_000

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
    return str(statement.compile(dialect=sqlite.dialect(), column_keys=[each.name for each in table.columns]))


_INFERENCES, _METADATA, _LABELS = _statement(inferences), _statement(metadata), _statement(labels)


class SqliteStore:
    """A `Store` in one file, which several processes may share.

    Args:
        file: made when it is not there.
        patience: seconds to wait for another process that writes.
    """

    def __init__(self, file: Path, patience: float = _PATIENCE) -> None:
        self._file = file
        self._patience = patience
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        # Whether the last write failed, so that nobody knows for certain that nothing of it was written.
        self._doubtful = False
        self._written = 0
        self._analysis = _FIRST_ANALYSIS

    def open(self) -> None:
        with self._failures():
            self._connect()

    def write(self, rows: Sequence[Rows]) -> None:
        with self._transaction() as connection:
            if self._doubtful:
                rows = _missing(connection, rows)
            (last,) = connection.execute("SELECT coalesce(max(number), 0) FROM inferences").fetchone()
            numbered = list(enumerate(rows, last + 1))
            connection.executemany(_INFERENCES, [(number, *each.inference) for number, each in numbered])
            connection.executemany(_METADATA, [(number, *row) for number, each in numbered for row in each.metadata])
            connection.executemany(_LABELS, [(number, *row) for number, each in numbered for row in each.labels])
        self._doubtful = False
        self._written += len(rows)
        if self._written >= self._analysis:
            # What was written is written, whatever becomes of this.
            with suppress(StoreError):
                self._analyse()

    def delete_before(self, started: int, most: int) -> int:
        with self._transaction() as connection:
            statement = "SELECT number FROM inferences WHERE started < ? ORDER BY started LIMIT ?"
            numbers = connection.execute(statement, (started, most)).fetchall()
            for table in (metadata, labels, inferences):
                connection.executemany(f"DELETE FROM {table.name} WHERE number = ?", numbers)  # noqa: S608
        return len(numbers)

    def images_since(self, digests: Collection[str], started: int) -> Collection[str]:
        statement = "SELECT 1 FROM inferences WHERE image_kept AND image_digest = ? AND started >= ? LIMIT 1"
        with self._failures():
            connection = self._connected()
            return {each for each in digests if connection.execute(statement, (each, started)).fetchone()}

    def forget_images(self, digests: Collection[str]) -> None:
        statement = "UPDATE inferences SET image_kept = 0 WHERE image_kept AND image_digest = ?"
        with self._transaction() as connection:
            connection.executemany(statement, [(each,) for each in digests])

    def close(self) -> None:
        if self._connection is None:
            return
        with suppress(StoreError):
            self._analyse()
        self._let_go()

    def _connected(self) -> sqlite3.Connection:
        # A file that was moved or deleted would be written on to, where nobody reads it.
        if self._connection is not None and not self._is_there():
            self._let_go()
        return self._connection or self._connect()

    def _connect(self) -> sqlite3.Connection:
        # Absolute, because SQLite takes what begins with "file:" for something else than a file's name.
        connection = sqlite3.connect(self._file.absolute(), timeout=self._patience, isolation_level=None)
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
        """See that the file is not the database of something else, before anything is changed in it."""
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if names and schema_version.name not in names:
            raise SettingsError(f"{self._file} is a database of something else than recordings")

    def _is_there(self) -> bool:
        with suppress(OSError):
            return self._file.stat().st_ino == self._inode
        return False

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _analyse(self) -> None:
        """Tell the planner how often values repeat; without it, two filters may take minutes together."""
        self._analysis = self._written + min(max(self._written, _FIRST_ANALYSIS), _MOST_BETWEEN_ANALYSES)
        with self._failures():
            self._connected().execute("ANALYZE")

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with self._failures():
            connection = self._connected()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.rollback()
                raise

    @contextmanager
    def _failures(self) -> Generator[None]:
        """What SQLite says, as a `StoreError`."""
        try:
            yield
        except (sqlite3.Error, DBAPIError) as error:
            # While the tables are looked at, SQLAlchemy wraps what SQLite says.
            said = error.orig if isinstance(error, DBAPIError) else error
            raise self._failed(_fault(said), said or error) from None
        except (OverflowError, UnicodeError) as error:
            raise self._failed(StoreFault.REJECTED, error) from None
        except OSError as error:
            raise self._failed(StoreFault.FAILED, error) from None

    def _failed(self, fault: StoreFault, error: BaseException) -> StoreError:
        self._doubtful = True
        if fault in (StoreFault.DAMAGED, StoreFault.FAILED):
            self._let_go()
        return StoreError(fault, f"{self._file}: {error}")


def _missing(connection: sqlite3.Connection, rows: Sequence[Rows]) -> Sequence[Rows]:
    statement = "SELECT 1 FROM inferences WHERE id = ?"
    return [each for each in rows if connection.execute(statement, (each.inference.id,)).fetchone() is None]


def _fault(error: BaseException | None) -> StoreFault:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return StoreFault.REJECTED if isinstance(error, sqlite3.ProgrammingError) else StoreFault.FAILED
    return _FAULTS.get(code & 0xFF, StoreFault.FAILED)
