"""Read-only connections to an SQLite file or to PostgreSQL."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

from sqlalchemy import Executable, create_engine
from sqlalchemy.engine import Row
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnectionError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import QueuePool

from app.recording.dsn import StoreDsn
from app.settings.extras import missing_extra
from app.settings.server import SettingsError
from tasks.inference.error import ErrorKind, InferenceError, truncate

__all__ = ("QueryConnection", "connect")

ResultT = TypeVar("ResultT")

_MAX_CONCURRENT = 4
"""Number of concurrent queries; others wait."""

_CACHE_KILOBYTES = 65_536
_CHECK_STEPS = 20_000
"""SQLite checks the deadline after this number of virtual machine steps, about 2 ms."""

_CANCELED = "57014"
"""PostgreSQL's error code for a statement that exceeded its timeout."""


class QueryConnection(Protocol):
    """A read-only connection to a store. All methods may be called from any thread."""

    def rows(self, statement: Executable, /) -> Sequence[Row[Any]]:
        """Return all rows of a statement.

        Raises:
            InferenceError: DEADLINE_EXCEEDED after the timeout, MODEL_NOT_READY when the store does not respond.
        """
        ...

    def close(self) -> None: ...


def connect(dsn: StoreDsn, seconds: float | None) -> QueryConnection:
    """Open a store for reading.

    Args:
        dsn: the address of the store.
        seconds: timeout of one statement; None for no timeout.

    Raises:
        SettingsError: when the driver is not installed.
    """
    if dsn.dialect == "sqlite":
        return _Sqlite(dsn, seconds)
    try:
        return _Postgresql(dsn, seconds)
    except ImportError as error:
        raise SettingsError(missing_extra("PostgreSQL", "postgres", error)) from None


class _Sqlite:
    def __init__(self, dsn: StoreDsn, seconds: float | None) -> None:
        self._display_name = dsn.display_name
        self._seconds = seconds
        self._file = dsn.file
        self._inode = _inode(dsn.file)
        uri = f"file:{quote(str(dsn.file.absolute()))}?mode=ro"

        def open_connection() -> sqlite3.Connection:
            connection = sqlite3.connect(uri, uri=True, check_same_thread=False, timeout=5)
            connection.execute("PRAGMA query_only = ON")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KILOBYTES // _MAX_CONCURRENT}")
            return connection

        self._engine = create_engine(
            "sqlite://",
            creator=open_connection,
            poolclass=QueuePool,
            pool_size=_MAX_CONCURRENT,
            max_overflow=0,
            pool_timeout=10,
        )

    def rows(self, statement: Executable, /) -> Sequence[Row[Any]]:
        deadline = None if self._seconds is None else time.monotonic() + self._seconds
        if (inode := _inode(self._file)) != self._inode:
            # A recording server recreates a deleted file, so connections to the deleted file are stale.
            self._inode = inode
            self._engine.dispose()
        try:
            with self._engine.connect() as connection:
                driver: Any = connection.connection.driver_connection
                if deadline is not None:
                    driver.set_progress_handler(lambda: time.monotonic() > deadline, _CHECK_STEPS)
                return connection.execute(statement).all()
        except NoConnectionError:
            raise _overloaded_error() from None
        except DBAPIError as error:
            if isinstance(error.orig, sqlite3.OperationalError) and str(error.orig) == "interrupted":
                raise _timeout_error(self._seconds) from None
            raise _unreadable_error(self._display_name, error.orig) from None

    def close(self) -> None:
        self._engine.dispose()


class _Postgresql:
    """Run an own event loop in a thread: asyncpg connections belong to the loop that created them."""

    def __init__(self, dsn: StoreDsn, seconds: float | None) -> None:
        self._display_name = dsn.display_name
        self._seconds = seconds
        settings = {"default_transaction_read_only": "on", "application_name": "charioteer", "jit": "off"}
        if seconds is not None:
            settings["statement_timeout"] = str(int(seconds * 1000))
        self._engine = create_async_engine(
            dsn.url,
            pool_size=_MAX_CONCURRENT,
            max_overflow=0,
            pool_timeout=10,
            pool_pre_ping=True,
            connect_args={"server_settings": settings, "timeout": 10},
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="recordings", daemon=True)
        self._thread.start()

    def rows(self, statement: Executable, /) -> Sequence[Row[Any]]:
        started = time.monotonic()
        try:
            return self._wait(self._rows(statement))
        except NoConnectionError:
            raise _overloaded_error() from None
        except DBAPIError as error:
            # If the timeout expires during another driver operation, the driver reports a different error.
            expired = self._seconds is not None and time.monotonic() - started >= self._seconds
            if expired or getattr(error.orig, "sqlstate", None) == _CANCELED:
                raise _timeout_error(self._seconds) from None
            raise _unreadable_error(self._display_name, error.orig) from None
        except OSError as error:
            raise _unreadable_error(self._display_name, error) from None

    def close(self) -> None:
        self._wait(self._engine.dispose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _rows(self, statement: Executable) -> Sequence[Row[Any]]:
        async with self._engine.connect() as connection:
            return (await connection.execute(statement)).all()

    def _wait(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _inode(file: Path) -> int:
    try:
        return file.stat().st_ino
    except OSError:
        return 0


def _overloaded_error() -> InferenceError:
    return InferenceError(ErrorKind.OVERLOADED, f"More than {_MAX_CONCURRENT} queries are in progress; try again")


def _timeout_error(seconds: float | None) -> InferenceError:
    message = f"The query took more than {seconds:g} seconds; narrow it, by since or by another filter"
    return InferenceError(ErrorKind.DEADLINE_EXCEEDED, message)


def _unreadable_error(display_name: str, error: BaseException | None) -> InferenceError:
    reason = truncate(str(error).strip().partition("\n")[0], 200)
    return InferenceError(ErrorKind.MODEL_NOT_READY, f"The recordings at {display_name} cannot be read: {reason}")
