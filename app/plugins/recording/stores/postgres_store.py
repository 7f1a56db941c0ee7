"""A store in PostgreSQL, for several servers (the extra ``postgres``)."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from sqlalchemy import Connection, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import create_async_engine

from app.core.settings.server import SettingsError
from app.plugins.recording.stores.migrations import upgrade
from app.plugins.recording.stores.rows import Rows
from app.plugins.recording.stores.store import ResultT, Store, StoreDsn, StoreError, StoreFault
from app.plugins.recording.stores.tables import numbers

_CONNECT_SECONDS = 3.0
_WRITE_TIMEOUT = 5.0
_UPGRADE_SECONDS = 6 * 3600.0
_DISCONNECT_SECONDS = 1.0

_FAULTS: Mapping[str, StoreFault] = {
    "53100": StoreFault.FULL,  # disk_full
    "55P03": StoreFault.LOCKED,  # lock_not_available
    "40P01": StoreFault.LOCKED,  # deadlock_detected
    "57014": StoreFault.LOCKED,  # query_canceled
    "XX001": StoreFault.DAMAGED,  # data_corrupted
    "XX002": StoreFault.DAMAGED,  # index_corrupted
    "22": StoreFault.REJECTED,  # data exceptions
    "23": StoreFault.REJECTED,  # integrity constraint violations
    "42601": StoreFault.REJECTED,  # syntax_error
    "54": StoreFault.REJECTED,  # program limits exceeded
    "08": StoreFault.UNREACHABLE,  # connection exceptions
    "28": StoreFault.UNREACHABLE,  # invalid authorizations
    "3D000": StoreFault.UNREACHABLE,  # invalid_catalog_name
    "53300": StoreFault.UNREACHABLE,  # too_many_connections
    "57P01": StoreFault.UNREACHABLE,  # admin_shutdown
    "57P02": StoreFault.UNREACHABLE,  # crash_shutdown
    "57P03": StoreFault.UNREACHABLE,  # cannot_connect_now
}
"""The faults by SQLSTATE, or by its class, the first two characters."""


class PostgresStore(Store):
    """A store in a database that several servers share. It reconnects when the connection is lost.

    Raise ImportError when the driver is not installed.

    Args:
        dsn: the address of the database.
        write_timeout: timeout in seconds of one attempt to write.
    """

    def __init__(self, dsn: StoreDsn, write_timeout: float = _WRITE_TIMEOUT) -> None:
        self._display_name = dsn.display_name
        self._write_timeout = write_timeout
        self._loop = asyncio.new_event_loop()
        options = {"timeout": _CONNECT_SECONDS}
        self._engine = create_async_engine(dsn.url, pool_size=1, max_overflow=0, connect_args=options)
        super().__init__(self._engine.dialect, lambda table: insert(table).on_conflict_do_nothing())
        self._upgraded = False
        self._connected = False
        # Rows of a failed write keep their numbers: the failed write may have succeeded, and must not add them twice.
        self._numbers: dict[str, int] = {}

    def open(self) -> None:
        self._run(upgrade, _UPGRADE_SECONDS)
        self._upgraded = self._connected = True

    def write(self, rows: Sequence[Rows]) -> None:
        super().write(rows)
        self._numbers.clear()

    def close(self) -> None:
        self._disconnect()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _number(self, connection: Connection, rows: Sequence[Rows]) -> Sequence[tuple[int, Rows]]:
        if self._numbers:
            self._numbers.update(self._existing(connection, rows))
        if new := [row.recording["id"] for row in rows if row.recording["id"] not in self._numbers]:
            next_numbers = select(numbers.next_value()).select_from(func.generate_series(1, len(new)))
            self._numbers.update(zip(new, sorted(connection.execute(next_numbers).scalars()), strict=True))
        return [(self._numbers[row.recording["id"]], row) for row in rows]

    def transaction(self, work: Callable[[Connection], ResultT]) -> ResultT:
        if not self._upgraded:
            self.open()
        was_connected, self._connected = self._connected, False
        try:
            result = self._run(work, self._write_timeout)
        except StoreError as error:
            # Retry once if an idle connection was lost, so that the inference is not lost too.
            if not was_connected or error.fault is not StoreFault.UNREACHABLE:
                raise
            result = self._run(work, self._write_timeout)
        self._connected = True
        return result

    def _run(self, work: Callable[[Connection], ResultT], seconds: float) -> ResultT:
        """Return the result of `work` in a transaction, or raise `StoreError` for every failure, also a timeout."""

        async def transact() -> ResultT:
            async with asyncio.timeout(seconds), self._engine.begin() as connection:
                return await connection.run_sync(work)

        try:
            return self._loop.run_until_complete(transact())
        except SettingsError:
            raise
        except Exception as error:  # noqa: BLE001  every failure becomes a StoreError
            fault, cause = _classify(error)
            if fault is not StoreFault.REJECTED:
                self._disconnect()
            reason = str(cause) or type(cause).__name__
            raise StoreError(fault, f"{self._display_name}: {reason}") from None

    def _disconnect(self) -> None:
        async def dispose() -> None:
            async with asyncio.timeout(_DISCONNECT_SECONDS):
                await self._engine.dispose()

        with suppress(Exception):
            self._loop.run_until_complete(dispose())


def _classify(error: BaseException) -> tuple[StoreFault, BaseException]:
    """Return the fault and the error that caused it: SQLAlchemy wraps the errors of asyncpg."""
    while type(error).__module__.startswith("sqlalchemy.") and error.__cause__ is not None:
        error = error.__cause__
    state: str | None = getattr(error, "sqlstate", None)
    if state is not None:
        return _FAULTS.get(state) or _FAULTS.get(state[:2], StoreFault.FAILED), error
    # asyncpg's errors for invalid values are also interface errors.
    if isinstance(error, ValueError | OverflowError):
        return StoreFault.REJECTED, error
    is_connection_error = isinstance(error, OSError) or type(error).__module__.startswith("asyncpg.")
    return StoreFault.UNREACHABLE if is_connection_error else StoreFault.FAILED, error
