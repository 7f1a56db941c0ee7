"""Stores whose tables have another version."""

import asyncio
import json
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Connection, Engine, create_engine, inspect, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from app.core.settings.server import SettingsError
from app.plugins.recording.inference_query import InferenceQuery
from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.stores.migrations import Migration, upgrade
from app.plugins.recording.stores.store import Store, parse_dsn
from tests.plugins.recording.conftest import open_store
from tests.plugins.recording.contents import contents, execute
from tests.support.data.recorded_rows import matching_ids


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = create_engine("sqlite://")
    yield engine
    engine.dispose()


def add_site(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE recordings ADD COLUMN site TEXT NOT NULL DEFAULT 'home'"))


def rename_site(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE recordings RENAME COLUMN site TO place"))


def fail(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE recordings ADD COLUMN other TEXT"))
    raise RuntimeError("a migration that fails")


def version(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.execute(text("SELECT version FROM inference_schema")).scalar_one()


def columns(engine: Engine) -> set[str]:
    return {column["name"] for column in inspect(engine).get_columns("recordings")}


def test_old_store_is_migrated_step_by_step(engine: Engine) -> None:
    for migrations, column in (((), "id"), ([], "id"), ([add_site], "site"), ([add_site, rename_site], "place")):
        with engine.begin() as connection:
            upgrade(connection, migrations)
        assert column in columns(engine)
        assert version(engine) == len(migrations) + 1


def test_foreign_tables_are_left_unchanged(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE recordings (a TEXT)"))
    with pytest.raises(SettingsError, match="a table recordings already"), engine.begin() as connection:
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
    assert execute(postgres_url, "SELECT site FROM recordings") == []


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
        for name in found.get_table_names()
        if not name.startswith("sqlite_")
    }


def write_old_store(url: str, version: int) -> None:
    folder = Path(__file__).with_name(f"version{version}")
    for statement in (folder / f"{parse_dsn(url).dialect}.sql").read_text().split(";\n"):
        if statement:
            execute(url, statement)


def open_and_close(url: str) -> None:
    with closing(open_store(url)) as store:
        store.open()


@pytest.mark.parametrize("version", [1, 2])
def test_migrated_tables_are_those_of_a_new_store(
    url: str, version: int, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_old_store(url, version)
    is_file = parse_dsn(url).dialect == "sqlite"
    fresh_url = str(tmp_path / "fresh.db") if is_file else request.getfixturevalue("postgres").create_database()
    for address in (url, fresh_url):
        open_and_close(address)
    reader, fresh = (RecordingReader(parse_dsn(address)) for address in (url, fresh_url))
    assert reader.run(schema) == fresh.run(schema)


def test_store_of_version_1_keeps_its_inference(url: str) -> None:
    write_old_store(url, 1)
    open_and_close(url)
    inference = RecordingReader(parse_dsn(url)).get("0193-0-0")
    assert inference is not None
    assert inference.records == [{"label": "car", "score": 0.75, "xmin": 1.0, "ymin": 2.0, "xmax": 30.0, "ymax": 40.0}]
    assert (inference.reason, inference.probability, inference.truth) == (None, None, None)


def test_store_of_0_2_keeps_everything_and_exports_older_truths(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_old_store(url, 2)
    before = execute(url, "SELECT * FROM inferences ORDER BY number")
    truths = execute(url, "SELECT * FROM inference_truths ORDER BY number, revision")
    with ThreadPoolExecutor(3) as threads:
        # Several servers may start at once.
        list(threads.map(open_and_close, [url] * 3))
    after = contents(url)
    kept = after[0].keys() & before[0].keys()
    assert [{name: row[name] for name in kept} for row in after] == [
        {name: row[name] for name in kept} for row in before
    ]
    reader = RecordingReader(parse_dsn(url))
    inferences = {one.id: one for one in reader.page(InferenceQuery(), 10).inferences}
    entries = [msgspec.to_builtins(inferences[row["id"]].metadata) for row in before]
    assert entries == [json.loads(row["metadata"]) for row in before]
    assert [(inferences[row["id"]].reason, inferences[row["id"]].probability) for row in before] == [
        (row["reason"], row["probability"]) for row in before
    ]
    assert matching_ids(reader, InferenceQuery(where=["altitude = 3", 'camera = "north"'])) == {before[3]["id"]}
    assert matching_ids(reader, InferenceQuery(reason="unsure")) == {before[1]["id"], before[4]["id"]}
    current = {row["number"]: row for row in truths if row["current"]}
    assert matching_ids(reader, InferenceQuery(truth="yes")) == {before[number - 1]["id"] for number in current}
    for number, row in current.items():
        truth = inferences[before[number - 1]["id"]].truth
        assert truth is not None
        assert (truth.verdict, truth.complete, truth.comment, truth.time, truth.records) == (
            row["verdict"], bool(row["complete"]), row["comment"], row["time"],
            row["records"] and json.loads(row["records"]),
        )  # fmt: skip
    (file,) = tmp_path.glob("*.older-truths.jsonl")
    older = [json.loads(line) for line in file.read_text().splitlines()]
    lost = [row for row in truths if not row["current"] or row["author"]]
    assert [(line["revision"], line["author"], line["comment"]) for line in older] == [
        (row["revision"], row["author"], row["comment"]) for row in lost
    ]
    # Of several shadow versions, the newest answer counts.
    shadows = [json.loads(row["shadow"]) for row in after]
    assert [(shadow["version"], shadow["agreed"], shadow["records"]) for shadow in shadows] == [
        ("3", bool(number % 2), [{"label": "car"}]) for number in range(6)
    ]


COPIES = 1500


@pytest.mark.slow
def test_kills_during_the_migration_lose_nothing(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_old_store(url, 2)
    columns = [name for name in execute(url, "SELECT * FROM inferences LIMIT 1")[0] if name not in ("number", "id")]
    copies = f"WITH RECURSIVE copies(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM copies WHERE n < {COPIES})"
    names = ", ".join(columns)
    execute(
        url,
        f"{copies} INSERT INTO inferences (number, id, {names})"
        f" SELECT number + 6 * n, id || '-' || n, {names} FROM inferences, copies"
        if not url.startswith("postgresql")
        else f"INSERT INTO inferences (number, id, {names}) {copies}"
        f" SELECT number + 6 * n, id || '-' || n, {names} FROM inferences, copies",
    )
    context, kills, seconds = multiprocessing.get_context("fork"), 0, 0.05
    while True:
        server = context.Process(target=open_and_close, args=(url,))
        server.start()
        server.join(seconds)
        if server.exitcode is not None:
            break
        server.kill()
        server.join()
        kills, seconds = kills + 1, seconds * 1.3
    assert server.exitcode == 0
    assert kills > 3
    assert execute(url, "SELECT count(*) AS n, count(DISTINCT id) AS ids FROM recordings") == [
        {"n": 6 * (COPIES + 1), "ids": 6 * (COPIES + 1)}
    ]
    assert len(RecordingReader(parse_dsn(url)).page(InferenceQuery(truth="yes"), 10).inferences) > 1
    if not url.startswith("postgresql"):
        assert execute(url, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]
