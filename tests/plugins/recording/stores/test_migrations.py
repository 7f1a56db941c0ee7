"""Stores whose tables have another version."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, create_engine, inspect, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from app.core.settings.server import SettingsError
from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.stores.migrations import Migration, upgrade
from app.plugins.recording.stores.store import Store, parse_dsn
from app.plugins.recording.stores.tables import SCHEMA
from tests.plugins.recording.conftest import open_store
from tests.plugins.recording.contents import execute

VERSION_1 = Path(__file__).with_name("version1")
"""Stores as the version without truths wrote them."""


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


def test_old_store_is_migrated_step_by_step(engine: Engine) -> None:
    for migrations, column in (((), "id"), ([], "id"), ([add_site], "site"), ([add_site, rename_site], "place")):
        with engine.begin() as connection:
            upgrade(connection, migrations)
        assert column in columns(engine)
        assert version(engine) == len(migrations) + 1


def test_foreign_tables_are_left_unchanged(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE inferences (a TEXT)"))
    with pytest.raises(SettingsError, match="a table inferences already"), engine.begin() as connection:
        upgrade(connection)
    assert columns(engine) == {"a"}


def test_failed_migration_changes_nothing(postgres_url: str) -> None:
    async def upgraded(*migrations: Migration) -> None:
        engine = create_async_engine(parse_dsn(postgres_url).url, poolclass=NullPool)
        async with engine.begin() as connection:
            await connection.run_sync(upgrade, migrations)

    asyncio.run(upgraded())
    with pytest.raises(RuntimeError, match="that fails"):
        asyncio.run(upgraded(add_site, fail))
    assert execute(postgres_url, "SELECT version FROM inference_schema") == [{"version": 1}]
    asyncio.run(upgraded(add_site))
    assert execute(postgres_url, "SELECT site FROM inferences") == []


def test_store_of_later_version_is_not_opened(store: Store, url: str) -> None:
    execute(url, "UPDATE inference_schema SET version = 99")
    with (
        closing(open_store(url)) as later,
        pytest.raises(SettingsError, match="written by a later Charioteer: its tables have version 99, this one"),
    ):
        later.open()
    assert execute(url, "SELECT version FROM inference_schema") == [{"version": 99}]


def schema(connection: Connection) -> dict[str, object]:
    found = inspect(connection)
    return {
        name: (
            {column["name"]: (str(column["type"]), column["nullable"]) for column in found.get_columns(name)},
            found.get_pk_constraint(name)["constrained_columns"],
            sorted((index["name"], index["column_names"], index["unique"]) for index in found.get_indexes(name)),
        )
        for name in SCHEMA.tables
    }


def test_store_of_version_1_gets_truths_and_keeps_its_inferences(
    url: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    dialect = parse_dsn(url).dialect
    for statement in (VERSION_1 / f"{dialect}.sql").read_text().split(";\n"):
        if statement:
            execute(url, statement)
    new_file = str(tmp_path / "fresh.db")
    fresh_url = request.getfixturevalue("postgres").create_database() if dialect == "postgresql" else new_file
    for address in (url, fresh_url):
        with closing(open_store(address)) as store:
            store.open()
    reader, fresh = (RecordingReader(parse_dsn(address)) for address in (url, fresh_url))
    assert reader.run(schema) == fresh.run(schema)
    inference = reader.get("0193-0-0")
    assert inference is not None
    assert inference.records == [{"label": "car", "score": 0.75, "xmin": 1.0, "ymin": 2.0, "xmax": 30.0, "ymax": 40.0}]
    assert (inference.reason, inference.probability, inference.truth) == (None, None, None)
