"""Stores whose tables have another version."""

import asyncio
from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Engine, create_engine, inspect, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from app.core.settings.server import SettingsError
from app.plugins.recording.stores.migrations import MIGRATIONS, Migration, upgrade
from app.plugins.recording.stores.store import parse_dsn
from app.plugins.recording.stores.tables import SCHEMA
from tests.plugins.recording.conftest import open_store
from tests.plugins.recording.contents import execute, select


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = create_engine("sqlite://")
    yield engine
    engine.dispose()


def add_site(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE inferences ADD COLUMN site TEXT NOT NULL DEFAULT 'home'"))


def rename_site(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE inferences RENAME COLUMN site TO place"))


def fail(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE inferences ADD COLUMN other TEXT"))
    raise RuntimeError("a migration that fails")


def version(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.execute(text("SELECT version FROM inference_schema")).scalar_one()


def columns(engine: Engine) -> set[str]:
    return {column["name"] for column in inspect(engine).get_columns("inferences")}


def test_new_store_has_all_tables_at_latest_version(engine: Engine) -> None:
    with engine.begin() as connection:
        upgrade(connection)
    assert set(inspect(engine).get_table_names()) == set(SCHEMA.tables)
    assert version(engine) == len(MIGRATIONS) + 1


def test_old_store_is_migrated_step_by_step(engine: Engine) -> None:
    with engine.begin() as connection:
        upgrade(connection, ())
    with engine.begin() as connection:
        upgrade(connection, [add_site])
    assert "site" in columns(engine)
    with engine.begin() as connection:
        upgrade(connection, [add_site, rename_site])
    assert "place" in columns(engine)
    assert version(engine) == 3


def test_foreign_tables_are_left_unchanged(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE inferences (a TEXT)"))
    with pytest.raises(SettingsError, match="a table inferences already"), engine.begin() as connection:
        upgrade(connection)
    assert columns(engine) == {"a"}


def test_current_store_is_not_changed(engine: Engine) -> None:
    for _ in range(2):
        with engine.begin() as connection:
            upgrade(connection, [])
    assert version(engine) == 1


def test_later_version_is_rejected_and_not_changed(engine: Engine) -> None:
    with engine.begin() as connection:
        upgrade(connection, ())
        upgrade(connection, [add_site, rename_site])
    with pytest.raises(SettingsError, match="version 3, this one knows 2"), engine.begin() as connection:
        upgrade(connection, [add_site])
    assert version(engine) == 3


def test_failed_migration_changes_nothing(postgres_url: str) -> None:
    async def upgraded(*migrations: Migration) -> None:
        engine = create_async_engine(parse_dsn(postgres_url).url, poolclass=NullPool)
        async with engine.begin() as connection:
            await connection.run_sync(upgrade, migrations)

    asyncio.run(upgraded())
    with pytest.raises(RuntimeError, match="that fails"):
        asyncio.run(upgraded(add_site, fail))
    assert select(postgres_url, "SELECT version FROM inference_schema") == [{"version": 1}]
    asyncio.run(upgraded(add_site))
    assert select(postgres_url, "SELECT site FROM inferences") == []


def test_store_of_later_version_is_not_opened(url: str) -> None:
    store = open_store(url)
    store.open()
    execute(url, "UPDATE inference_schema SET version = 99")
    later = open_store(url)
    with pytest.raises(SettingsError, match="written by a later Charioteer: its tables have version 99"):
        later.open()
    later.close()
    store.close()
