"""A store in PostgreSQL, for several servers (the extra ``postgres``)."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

import asyncpg
from sqlalchemy import Table
from sqlalchemy.dialects.postgresql import asyncpg as dialect
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from app.recording.stores.dsn import StoreDsn
from app.recording.stores.migrations import upgrade
from app.recording.stores.rows import Rows
from app.recording.stores.store import StoreError, StoreFault
from app.recording.stores.tables import inferences, labels, metadata, numbers
from app.settings.server import SettingsError

ResultT = TypeVar("ResultT")

Connection = Any
"""An asyncpg connection. Its methods have no type annotations."""

_connect = cast("Callable[..., Awaitable[Connection]]", asyncpg.connect)  # pyright: ignore[reportUnknownMemberType]
_CONNECT_SECONDS = 3.0
_WRITE_SECONDS = 5.0
_UPGRADE_SECONDS = 600.0

# In this order: asyncpg also raises its interface errors for invalid values.
_FAULTS: Mapping[StoreFault, tuple[type[Exception], ...]] = {
    StoreFault.FULL: (asyncpg.DiskFullError,),
    StoreFault.LOCKED: (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError, asyncpg.QueryCanceledError),
    StoreFault.DAMAGED: (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError),
    StoreFault.REJECTED: (
        asyncpg.DataError,
        asyncpg.PostgresSyntaxError,
        asyncpg.IntegrityConstraintViolationError,
        asyncpg.ProgramLimitExceededError,
        ValueError,
        OverflowError,
    ),
    StoreFault.UNREACHABLE: (
        OSError,
        TimeoutError,
        asyncpg.PostgresConnectionError,
        asyncpg.CannotConnectNowError,
        asyncpg.AdminShutdownError,
        asyncpg.CrashShutdownError,
        asyncpg.InvalidAuthorizationSpecificationError,
        asyncpg.InvalidCatalogNameError,
        asyncpg.TooManyConnectionsError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
    ),
}


def _statement(table: Table) -> str:
    statement = insert(table).on_conflict_do_nothing()
    return str(statement.compile(dialect=dialect.dialect(), column_keys=[column.name for column in table.columns]))


_INFERENCES, _METADATA, _LABELS = _statement(inferences), _statement(metadata), _statement(labels)
_EXISTING = "SELECT id, number FROM inferences WHERE id = ANY($1)"


class PostgresStore:
    """A `Store` in a database that several servers share. It reconnects when the connection is lost."""

    def __init__(self, dsn: StoreDsn) -> None:
        self._dsn = dsn
        self._loop = asyncio.new_event_loop()
        self._connection: Connection | None = None
        self._upgraded = False
        # Rows of a failed write keep their numbers: the failed write may have succeeded, and must not add them twice.
        self._numbers: dict[str, int] = {}

    def open(self) -> None:
        self._run(self._get_connection(), _UPGRADE_SECONDS)

    def write(self, rows: Sequence[Rows]) -> None:
        async def write_rows() -> None:
            await self._transaction(lambda connection: self._write(connection, rows))

        if not self._upgraded:
            self.open()
        is_new_connection = self._connection is None
        try:
            self._run(write_rows())
        except StoreError as error:
            # Retry once if an idle connection was lost, so that the inference is not lost too.
            if is_new_connection or error.fault is not StoreFault.UNREACHABLE:
                raise
            self._run(write_rows())
        self._numbers.clear()

    def delete_before(self, started: int, limit: int) -> int:
        async def delete(connection: Connection) -> int:
            statement = (
                "SELECT number FROM inferences WHERE started < $1 ORDER BY started LIMIT $2 FOR UPDATE SKIP LOCKED"
            )
            row_numbers = [row[0] for row in await connection.fetch(statement, started, limit)]
            for table in (metadata, labels, inferences):
                await connection.execute(f"DELETE FROM {table.name} WHERE number = ANY($1)", row_numbers)  # noqa: S608
            return len(row_numbers)

        return self._run(self._transaction(delete))

    def images_since(self, digests: Collection[str], started: int) -> Collection[str]:
        async def find(connection: Connection) -> Collection[str]:
            statement = (
                "SELECT DISTINCT image_digest FROM inferences"
                " WHERE image_kept AND image_digest = ANY($1) AND started >= $2"
            )
            return {row[0] for row in await connection.fetch(statement, list(digests), started)}

        return self._run(self._transaction(find))

    def mark_images_deleted(self, digests: Collection[str]) -> None:
        async def mark_deleted(connection: Connection) -> None:
            statement = "UPDATE inferences SET image_kept = false WHERE image_kept AND image_digest = ANY($1)"
            await connection.execute(statement, list(digests))

        self._run(self._transaction(mark_deleted))

    def close(self) -> None:
        if self._connection is not None:
            with suppress(StoreError):
                self._run(self._connection.close())
        self._disconnect()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _get_connection(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            if not self._upgraded:
                await self._upgrade()
                self._upgraded = True
            _, options = dialect.dialect().create_connect_args(self._dsn.url)
            self._connection = await _connect(**options, timeout=_CONNECT_SECONDS)
        return self._connection

    async def _upgrade(self) -> None:
        options = {"timeout": _CONNECT_SECONDS}
        engine = create_async_engine(self._dsn.url, poolclass=NullPool, connect_args=options)
        async with engine.begin() as connection:
            await connection.run_sync(upgrade)

    async def _transaction(self, work: Callable[[Connection], Awaitable[ResultT]]) -> ResultT:
        connection = await self._get_connection()
        async with connection.transaction():
            return await work(connection)

    async def _write(self, connection: Connection, rows: Sequence[Rows]) -> None:
        if self._numbers:
            existing = await connection.fetch(_EXISTING, [row.inference.id for row in rows])
            self._numbers.update((row[0], row[1]) for row in existing)
        new = [row.inference.id for row in rows if row.inference.id not in self._numbers]
        if new:
            statement = f"SELECT nextval('{numbers.name}') FROM generate_series(1, $1)"  # noqa: S608
            new_numbers = await connection.fetch(statement, len(new))
            self._numbers.update(zip(new, sorted(row[0] for row in new_numbers), strict=True))
        numbered = [(self._numbers[row.inference.id], row) for row in rows]
        await connection.executemany(_INFERENCES, [(number, *row.inference) for number, row in numbered])
        if values := [(number, *entry) for number, row in numbered for entry in row.metadata]:
            await connection.executemany(_METADATA, values)
        if values := [(number, *label) for number, row in numbered for label in row.labels]:
            await connection.executemany(_LABELS, values)

    def _run(self, work: Coroutine[Any, Any, ResultT], seconds: float = _WRITE_SECONDS) -> ResultT:
        """Run `work` and return its result.

        Raises:
            StoreError: for every failure, timeouts included.
        """

        async def with_timeout() -> ResultT:
            async with asyncio.timeout(seconds):
                return await work

        try:
            return self._loop.run_until_complete(with_timeout())
        except SettingsError:
            raise
        except Exception as error:  # noqa: BLE001  every failure becomes a StoreError
            fault, cause = _classify(error)
            if fault is not StoreFault.REJECTED:
                self._disconnect()
            reason = str(cause) or type(cause).__name__
            raise StoreError(fault, f"{self._dsn.display_name}: {reason}") from None

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()


def _classify(error: BaseException) -> tuple[StoreFault, BaseException]:
    """Return the fault and the error that caused it: SQLAlchemy wraps the errors of asyncpg."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        return _classify(error.orig.__cause__ or error.orig)
    return next((fault for fault, kinds in _FAULTS.items() if isinstance(error, kinds)), StoreFault.FAILED), error
