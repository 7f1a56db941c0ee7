"""Where a store is: a file of SQLite, or a database of PostgreSQL."""

from pathlib import Path
from typing import Literal

import msgspec
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from app.settings.server import SettingsError

__all__ = ("StoreAddress", "read_address")

_EXPECTED = "expected a file, sqlite:///<file> or postgresql://<user>@<host>/<database>"


class StoreAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a store is.

    Attributes:
        dialect: which database it is in.
        url: what SQLAlchemy connects to. It may have a password in it, and is never shown.
        shown: what may be shown of it: no user, no password, no options.
    """

    dialect: Literal["sqlite", "postgresql"]
    url: URL
    shown: str

    @property
    def file(self) -> Path:
        """The file of a store in SQLite."""
        return Path(self.url.database or "")


def read_address(text: str) -> StoreAddress:
    """Read an address as operators write it; no part of a password gets into an error.

    Raises:
        SettingsError: when it is neither a file nor an address of SQLite or PostgreSQL.
    """
    if "://" not in text:
        return _sqlite(text)
    scheme = text.partition("://")[0]
    try:
        url = make_url(text)
        port = url.port
    except (ArgumentError, ValueError):
        raise SettingsError(f"The address of the store cannot be read: {_EXPECTED}") from None
    if scheme == "sqlite":
        if url.host or url.query:
            raise SettingsError(f"The address of the store has a host or options: {_EXPECTED}")
        return _sqlite(url.database or "")
    if scheme not in ("postgresql", "postgres", "postgresql+asyncpg"):
        raise SettingsError(f"The store is of a kind that is not known, {scheme!r}: {_EXPECTED}")
    if not url.database:
        raise SettingsError(f"The address of the store names no database: {_EXPECTED}")
    place = f"{url.host or 'localhost'}{f':{port}' if port else ''}"
    return StoreAddress(dialect="postgresql", url=_asyncpg(url), shown=f"postgresql://{place}/{url.database}")


def _sqlite(file: str) -> StoreAddress:
    if not file or file == ":memory:":
        raise SettingsError(f"The address of the store names no file: {_EXPECTED}")
    return StoreAddress(dialect="sqlite", url=URL.create("sqlite", database=file), shown=file)


def _asyncpg(url: URL) -> URL:
    """`url` for asyncpg, which calls `ssl` what the other drivers, and so most addresses, call `sslmode`."""
    named = {"ssl" if name == "sslmode" else name: value for name, value in url.query.items()}
    return url.set(drivername="postgresql+asyncpg", query=named)
