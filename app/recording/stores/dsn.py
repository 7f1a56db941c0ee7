"""Addresses of stores: an SQLite file or a PostgreSQL database."""

from pathlib import Path
from typing import Literal

import msgspec
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from app.settings.server import SettingsError

_EXPECTED = "expected a file, sqlite:///<file> or postgresql://<user>@<host>/<database>"


class StoreDsn(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a store.

    Attributes:
        dialect: the database system.
        url: the URL for SQLAlchemy. It may contain a password, so it is never shown.
        display_name: the address without user, password and options, for logs and errors.
    """

    dialect: Literal["sqlite", "postgresql"]
    url: URL
    display_name: str

    @property
    def file(self) -> Path:
        """The file of an SQLite store."""
        return Path(self.url.database or "")


def parse_dsn(text: str) -> StoreDsn:
    """Parse an address from the settings. Errors never contain any part of a password.

    Raises:
        SettingsError: when the text is neither a file nor an SQLite or PostgreSQL address.
    """
    if "://" not in text:
        return _sqlite_dsn(text)
    scheme = text.partition("://")[0]
    try:
        url = make_url(text)
        port = url.port
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
    host_and_port = f"{url.host or 'localhost'}{f':{port}' if port else ''}"
    return StoreDsn(
        dialect="postgresql", url=_asyncpg_url(url), display_name=f"postgresql://{host_and_port}/{url.database}"
    )


def _sqlite_dsn(file: str) -> StoreDsn:
    if not file or file == ":memory:":
        raise SettingsError(f"The address of the store names no file: {_EXPECTED}")
    return StoreDsn(dialect="sqlite", url=URL.create("sqlite", database=file), display_name=file)


def _asyncpg_url(url: URL) -> URL:
    """Return `url` for asyncpg. Its option `ssl` is `sslmode` in other drivers and in most addresses."""
    options = {"ssl" if name == "sslmode" else name: value for name, value in url.query.items()}
    return url.set(drivername="postgresql+asyncpg", query=options)
