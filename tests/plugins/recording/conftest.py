"""Fixtures for stores: SQLite files, and databases of a real PostgreSQL server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.plugins.recording.stores.sqlite_store import SqliteStore
from app.plugins.recording.stores.store import Store, parse_dsn
from tests.support.servers.postgres import PostgresServer


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """Return the address of an empty database."""
    return postgres.empty_database()


@pytest.fixture(params=("sqlite", "postgresql"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of an empty store, of each kind."""
    if request.param == "postgresql":
        return request.getfixturevalue("postgres_url")
    return str(tmp_path / "store.db")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """Open a store of each kind."""
    store = open_store(url)
    store.open()
    yield store
    store.close()


def open_store(url: str) -> Store:
    """Return the store at an address, not yet opened."""
    from app.plugins.recording.stores.postgres_store import PostgresStore

    address = parse_dsn(url)
    return SqliteStore(address.file, busy_timeout=0.1) if address.dialect == "sqlite" else PostgresStore(address)
