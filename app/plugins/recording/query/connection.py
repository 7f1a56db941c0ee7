"""Run queries in an SQLite file or in PostgreSQL, read-only."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from app.core.engine.error_text import needs_extra
from app.core.settings.server import SettingsError
from app.plugins.recording.stores.store import ResultT, StoreDsn
from tasks.inference.error import ErrorKind, InferenceError, truncate

_CHECK_STEPS = 20_000  # of SQLite's virtual machine between checks of the deadline


class QueryRunner:
    """Run queries for at most `seconds`, each with a connection of its own. Several threads may call it at once."""

    def __init__(self, dsn: StoreDsn, seconds: float | None) -> None:
        self._display_name = dsn.display_name
        self._seconds = seconds
        with needs_extra("PostgreSQL", "postgres", SettingsError):
            self._run = (_sqlite_runner if dsn.dialect == "sqlite" else _postgresql_runner)(dsn, seconds)

    def __call__(self, query: Callable[[Connection], ResultT]) -> ResultT:
        """Call `query` with a connection, and return its result.

        Raise DEADLINE_EXCEEDED after the timeout, MODEL_NOT_READY when the store does not respond.
        """
        started = time.monotonic()
        try:
            return self._run(query)
        except (DBAPIError, OSError, UnicodeError) as error:
            # The error of an expired timeout depends on the operation of the driver that it interrupted.
            if self._seconds is not None and time.monotonic() - started >= self._seconds:
                message = f"The query took more than {self._seconds:g} seconds; narrow it, by since or another filter"
                raise InferenceError(ErrorKind.DEADLINE_EXCEEDED, message) from None
            cause = error.orig if isinstance(error, DBAPIError) else error
            reason = truncate(str(cause).strip().partition("\n")[0], 200)
            message = f"The recordings at {self._display_name} cannot be read: {reason}"
            raise InferenceError(ErrorKind.MODEL_NOT_READY, message) from None


def _sqlite_runner(dsn: StoreDsn, seconds: float | None) -> Callable[[Callable[[Connection], Any]], Any]:
    uri = f"file:{quote(str(dsn.file.absolute()))}?mode=ro"

    connect = partial(sqlite3.connect, uri, uri=True, check_same_thread=False, timeout=5)
    engine = create_engine("sqlite://", creator=connect, poolclass=NullPool)

    def run(query: Callable[[Connection], Any]) -> Any:
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA query_only = ON")
            connection.exec_driver_sql("PRAGMA cache_size = -16384")
            if seconds is not None:
                deadline = time.monotonic() + seconds
                driver: Any = connection.connection.driver_connection
                driver.set_progress_handler(lambda: time.monotonic() > deadline, _CHECK_STEPS)
            return query(connection)

    return run


class _ThreadEngine(threading.local):
    """An engine for each thread: in two event loops at once, the first queries of an engine wait for each other."""

    def __init__(self, dsn: StoreDsn, options: Mapping[str, Any]) -> None:
        self.engine = create_async_engine(dsn.url, connect_args=options, poolclass=NullPool)


def _postgresql_runner(dsn: StoreDsn, seconds: float | None) -> Callable[[Callable[[Connection], Any]], Any]:
    settings = {"default_transaction_read_only": "on", "application_name": "charioteer", "jit": "off"}
    if seconds is not None:
        settings["statement_timeout"] = str(int(seconds * 1000))
    options = {"server_settings": settings, "timeout": 10, "command_timeout": seconds}
    local = _ThreadEngine(dsn, options)

    async def run(query: Callable[[Connection], Any]) -> Any:
        # No `statement_timeout` ends a query whose connection is lost.
        async with asyncio.timeout(seconds), local.engine.connect() as connection:
            return await connection.run_sync(query)

    return lambda query: asyncio.run(run(query))
