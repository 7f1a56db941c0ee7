"""Connections that only read: to a file of SQLite, and to PostgreSQL."""

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

from app.recording.address import StoreAddress
from app.settings.server import SettingsError
from tasks.exchange.error import ErrorKind, InferenceError, shortened

__all__ = ("Connection", "connect")

ResultT = TypeVar("ResultT")

_AT_ONCE = 4
"""Queries in hand at a time; others wait."""

_CACHE_KILOBYTES = 65_536
_STEPS = 20_000
"""SQLite looks at the clock again after so many steps of its virtual machine, some 2 ms."""

_CANCELED = "57014"
"""PostgreSQL's code for a statement that took too long."""


class Connection(Protocol):
    """Asks a store; from any thread."""

    def rows(self, statement: Executable, /) -> Sequence[Row[Any]]:
        """All rows of a statement.

        Raises:
            InferenceError: DEADLINE_EXCEEDED when it takes too long, MODEL_NOT_READY when the store does not answer.
        """
        ...

    def close(self) -> None: ...


def connect(address: StoreAddress, seconds: float | None) -> Connection:
    """Open a store for reading.

    Args:
        address: of the store.
        seconds: that one statement may take; as long as it likes when None.

    Raises:
        SettingsError: when what it needs is not installed.
    """
    if address.dialect == "sqlite":
        return _Sqlite(address, seconds)
    try:
        return _Postgresql(address, seconds)
    except ImportError as error:
        raise SettingsError(
            f"PostgreSQL needs the extra postgres, pip install charioteer[postgres] ({error})"
        ) from None


class _Sqlite:
    def __init__(self, address: StoreAddress, seconds: float | None) -> None:
        self._shown = address.shown
        self._seconds = seconds
        self._file = address.file
        self._inode = _inode(address.file)
        uri = f"file:{quote(str(address.file.absolute()))}?mode=ro"

        def opened() -> sqlite3.Connection:
            connection = sqlite3.connect(uri, uri=True, check_same_thread=False, timeout=5)
            connection.execute("PRAGMA query_only = ON")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KILOBYTES // _AT_ONCE}")
            return connection

        self._engine = create_engine(
            "sqlite://", creator=opened, poolclass=QueuePool, pool_size=_AT_ONCE, max_overflow=0, pool_timeout=10
        )

    def rows(self, statement: Executable, /) -> Sequence[Row[Any]]:
        deadline = None if self._seconds is None else time.monotonic() + self._seconds
        if (inode := _inode(self._file)) != self._inode:
            # Who records makes a file that was taken away anew; what was read before is no longer it.
            self._inode = inode
            self._engine.dispose()
        try:
            with self._engine.connect() as connection:
                driver: Any = connection.connection.driver_connection
                if deadline is not None:
                    driver.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
                return connection.execute(statement).all()
        except NoConnectionError:
            raise _busy() from None
        except DBAPIError as error:
            if isinstance(error.orig, sqlite3.OperationalError) and str(error.orig) == "interrupted":
                raise _late(self._seconds) from None
            raise _unreadable(self._shown, error.orig) from None

    def close(self) -> None:
        self._engine.dispose()


class _Postgresql:
    """A loop of its own, in a thread: connections of asyncpg belong to the loop that made them."""

    def __init__(self, address: StoreAddress, seconds: float | None) -> None:
        self._shown = address.shown
        self._seconds = seconds
        settings = {"default_transaction_read_only": "on", "application_name": "charioteer", "jit": "off"}
        if seconds is not None:
            settings["statement_timeout"] = str(int(seconds * 1000))
        self._engine = create_async_engine(
            address.url,
            pool_size=_AT_ONCE,
            max_overflow=0,
            pool_timeout=10,
            pool_pre_ping=True,
            connect_args={"server_settings": settings, "timeout": 10},
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="recordings", daemon=True)
        self._thread.start()

    def rows(self, statement: Executable, /) -> Sequence[Row[Any]]:
        began = time.monotonic()
        try:
            return self._wait(self._rows(statement))
        except NoConnectionError:
            raise _busy() from None
        except DBAPIError as error:
            # The time may be over while the driver does something else, which it then tells in its own words.
            over = self._seconds is not None and time.monotonic() - began >= self._seconds
            if over or getattr(error.orig, "sqlstate", None) == _CANCELED:
                raise _late(self._seconds) from None
            raise _unreadable(self._shown, error.orig) from None
        except OSError as error:
            raise _unreadable(self._shown, error) from None

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


def _busy() -> InferenceError:
    return InferenceError(ErrorKind.OVERLOADED, f"More than {_AT_ONCE} queries are in hand; try again")


def _late(seconds: float | None) -> InferenceError:
    message = f"The query took more than {seconds:g} seconds; narrow it, by since or by another filter"
    return InferenceError(ErrorKind.DEADLINE_EXCEEDED, message)


def _unreadable(shown: str, error: BaseException | None) -> InferenceError:
    reason = shortened(str(error).strip().partition("\n")[0], 200)
    return InferenceError(ErrorKind.MODEL_NOT_READY, f"The recordings at {shown} cannot be read: {reason}")
