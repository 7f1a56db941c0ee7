"""Fixtures for stores: SQLite files, and databases of a real PostgreSQL server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.stores.sqlite_store import SqliteStore
from app.plugins.recording.stores.store import Store, parse_dsn
from tests.support.data.recorded_rows import ALL_ROWS
from tests.support.servers.postgres import PostgresServer


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    return postgres.empty_database()


@pytest.fixture(params=("sqlite", "postgresql"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of an empty store, of each kind."""
    if request.param == "postgresql":
        return request.getfixturevalue("postgres_url")
    return str(tmp_path / "store.db")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url)
    store.open()
    yield store
    store.close()


@pytest.fixture(scope="session", params=("sqlite", "postgresql"))
def filled_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a store of each kind with every kind of inference, which tests do not change."""
    is_file = request.param == "sqlite"
    postgres = None if is_file else request.getfixturevalue("postgres")
    url = postgres.create_database() if postgres else str(tmp_path_factory.mktemp("filled") / "store.db")
    store = open_store(url)
    store.open()
    store.write(ALL_ROWS)
    store.close()
    return url


@pytest.fixture(scope="session")
def reader(filled_url: str) -> RecordingReader:
    """Return a reader of the store with every kind of inference."""
    return RecordingReader(parse_dsn(filled_url))


def open_store(url: str) -> Store:
    """Return the store at an address, not yet opened."""
    from app.plugins.recording.stores.postgres_store import PostgresStore

    address = parse_dsn(url)
    return SqliteStore(address.file, busy_timeout=0.1) if address.dialect == "sqlite" else PostgresStore(address)
