"""A store of recordings: its address, the statements that SQLite and PostgreSQL share, and its errors."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from operator import itemgetter
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from sqlalchemy import Connection, Insert, Table, delete, select, update
from sqlalchemy.engine import URL, Dialect, make_url
from sqlalchemy.exc import ArgumentError

from app.core.settings.server import SettingsError
from app.plugins.recording.stores.rows import Rows, json_text
from app.plugins.recording.stores.tables import labels, metadata, recordings

ResultT = TypeVar("ResultT")

_MAX_IDS = 1000
"""Maximum number of ids in one statement, well below the limits of both databases."""

_values = itemgetter(*(column.name for column in recordings.columns if column.name != "number"))

_EXPECTED = "expected a file, sqlite:///<file> or postgresql://<user>@<host>/<database>"


class StoreFault(StrEnum):
    """Why a write failed, for clients and metrics."""

    FULL = "full"
    LOCKED = "locked"
    DAMAGED = "damaged"
    UNREACHABLE = "unreachable"
    REJECTED = "rejected"
    FAILED = "failed"


class StoreError(Exception):
    """A failure of a store. The message is for the operator, without secrets from the address."""

    def __init__(self, fault: StoreFault, message: str) -> None:
        self.fault = fault
        super().__init__(message)


class Store(ABC):
    """A store of rows. One thread calls all methods; they raise `StoreError`."""

    def __init__(self, dialect: Dialect, insert: Callable[[Table], Insert]) -> None:
        # A connection is closed after an error, which is reported; another error while it is closed says nothing new.
        logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
        # The driver's cursor takes text and tuples, which halves the CPU time of a commit.
        self._inserts = {
            table: str(insert(table).compile(dialect=dialect, column_keys=[column.name for column in table.columns]))
            for table in (recordings, metadata, labels)
        }

    @abstractmethod
    def open(self) -> None:
        """Connect and migrate the tables. After a failure it may be called again.

        Raise SettingsError when the tables are newer than this program.
        """

    def write(self, rows: Sequence[Rows]) -> None:
        """Write `rows` in one durable transaction. Rows that already exist stay unchanged."""

        def insert_rows(connection: Connection) -> None:
            numbered = self._number(connection, rows)
            values = {
                recordings: [(number, *_values(row.recording)) for number, row in numbered],
                metadata: [(number, row.metadata) for number, row in numbered if row.metadata],
                labels: [(number, *label) for number, row in numbered for label in row.labels.items()],
            }
            cursor = connection.connection.cursor()
            for table, table_rows in values.items():
                if table_rows:
                    cursor.executemany(self._inserts[table], table_rows)

        self.transaction(insert_rows)

    def delete_before(self, started: int, limit: int) -> int:
        """Delete at most `limit` inferences that began before `started`, in microseconds since 1970; return how many.

        The oldest are deleted first.
        """
        oldest = select(recordings.c.number).where(recordings.c.started < started).order_by(recordings.c.started)

        def delete_rows(connection: Connection) -> int:
            statement = oldest.limit(limit).with_for_update(skip_locked=True)
            numbers = connection.execute(statement).scalars().all()
            for table in (labels, metadata, recordings):
                connection.execute(delete(table).where(table.c.number.in_(numbers)))
            return len(numbers)

        return self.transaction(delete_rows)

    def images_since(self, digests: Collection[str], started: int) -> Collection[str]:
        """Return the `digests` that belong to an inference which began at `started` or later."""
        digest = recordings.c.image_digest
        in_use = recordings.c.image_kept & digest.in_(digests) & (recordings.c.started >= started)
        statement = select(digest).where(in_use).distinct()
        return set(self.transaction(lambda connection: connection.execute(statement).scalars().all()))

    def mark_images_deleted(self, digests: Collection[str]) -> None:
        kept = recordings.c.image_kept & recordings.c.image_digest.in_(digests)
        statement = update(recordings).where(kept).values(image_kept=False)
        self.transaction(lambda connection: connection.execute(statement))

    def set_documents(
        self, column: Literal["truth", "shadow"], documents: Mapping[str, object | None]
    ) -> Collection[str]:
        """Set a JSON column of existing inferences in one durable transaction; None clears it.

        Return the ids of the inferences that exist.

        Args:
            column: the name of the column.
            documents: what becomes the JSON, by the id of the inference.
        """

        def update_rows(connection: Connection) -> Collection[str]:
            found: list[str] = []
            # One order for all writers prevents deadlocks.
            for name, document in sorted(documents.items()):
                value = None if document is None else json_text(document)
                statement = update(recordings).where(recordings.c.id == name).values({column: value})
                if connection.execute(statement).rowcount:
                    found.append(name)
            return found

        return self.transaction(update_rows)

    @abstractmethod
    def close(self) -> None:
        """Close the store. This never raises."""

    def _existing(self, connection: Connection, rows: Sequence[Rows]) -> Mapping[str, int]:
        """Return the numbers of the rows that exist already, by id."""
        found: dict[str, int] = {}
        for start in range(0, len(rows), _MAX_IDS):
            ids = [row.recording["id"] for row in rows[start : start + _MAX_IDS]]
            statement = select(recordings.c.id, recordings.c.number).where(recordings.c.id.in_(ids))
            found.update((row.id, row.number) for row in connection.execute(statement))
        return found

    @abstractmethod
    def _number(self, connection: Connection, rows: Sequence[Rows]) -> Sequence[tuple[int, Rows]]:
        """Return rows with their numbers. Rows exist already if the previous write failed after its commit."""

    @abstractmethod
    def transaction(self, work: Callable[[Connection], ResultT]) -> ResultT:
        """Return the result of `work` in a transaction."""


class StoreDsn(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a store."""

    dialect: Literal["sqlite", "postgresql"]
    url: URL  # the URL for SQLAlchemy. It may contain a password, so it is never shown.
    display_name: str  # the address without user, password and options, for logs and errors

    @property
    def file(self) -> Path:
        return Path(self.url.database or "")


def parse_dsn(text: str) -> StoreDsn:
    """Parse an address from the settings. Errors never contain any part of a password.

    Raise SettingsError when the text is neither a file nor an SQLite or PostgreSQL address.
    """
    if "://" not in text:
        return _sqlite_dsn(text)
    scheme = text.partition("://")[0]
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise SettingsError(f"The address of the store cannot be read: {_EXPECTED}") from None
    if scheme == "sqlite":
        if url.host or url.query:
            raise SettingsError(f"The address of the store has a host or options: {_EXPECTED}")
        return _sqlite_dsn(url.database or "")
    if scheme not in ("postgresql", "postgres", "postgresql+asyncpg"):
        raise SettingsError(f"The store has an unknown scheme, {scheme!r}: {_EXPECTED}")
    if not url.database:
        raise SettingsError(f"The address of the store names no database: {_EXPECTED}")
    # asyncpg's option `ssl` is `sslmode` in other drivers and in most addresses.
    options = {"ssl" if name == "sslmode" else name: value for name, value in url.query.items()}
    asyncpg_url = url.set(drivername="postgresql+asyncpg", query=options)
    shown = URL.create("postgresql", host=url.host or "localhost", port=url.port, database=url.database)
    return StoreDsn(dialect="postgresql", url=asyncpg_url, display_name=str(shown))


def _sqlite_dsn(file: str) -> StoreDsn:
    if not file or file == ":memory:":
        raise SettingsError(f"The address of the store names no file: {_EXPECTED}")
    return StoreDsn(dialect="sqlite", url=URL.create("sqlite", database=file), display_name=file)
