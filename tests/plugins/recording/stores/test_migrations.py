"""Stores whose tables have another version."""

import json
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Connection, create_engine, inspect, text

from app.core.settings.server import SettingsError
from app.plugins.recording.inference_query import InferenceQuery
from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.stores.migrations import upgrade
from app.plugins.recording.stores.store import Store, parse_dsn
from tests.plugins.recording.conftest import open_store
from tests.plugins.recording.contents import contents, execute
from tests.support.data.recorded_rows import matching_ids


def test_foreign_tables_are_left_unchanged() -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE recordings (a TEXT)"))
    with pytest.raises(SettingsError, match="a table recordings already"), engine.begin() as connection:
        upgrade(connection)
    assert [column["name"] for column in inspect(engine).get_columns("recordings")] == ["a"]
    engine.dispose()


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (99, "written by a later Charioteer: its tables have version 99, this one knows 4"),
        (1, "Expected a store of 0.2 or later, got tables of version 1; serve it once with 0.2"),
    ],
)
def test_store_of_a_version_that_cannot_be_upgraded_is_not_opened(
    store: Store, url: str, version: int, message: str
) -> None:
    execute(url, f"UPDATE inference_schema SET version = {version}")
    with closing(open_store(url)) as other, pytest.raises(SettingsError, match=message):
        other.open()
    assert execute(url, "SELECT version FROM inference_schema") == [{"version": version}]


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


def write_old_store(url: str) -> None:
    file = Path(__file__).with_name("version2") / f"{parse_dsn(url).dialect}.sql"
    for statement in file.read_text().split(";\n"):
        if statement:
            execute(url, statement)


def open_and_close(url: str) -> None:
    with closing(open_store(url)) as store:
        store.open()


def test_migrated_tables_are_those_of_a_new_store(
    url: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_old_store(url)
    is_file = parse_dsn(url).dialect == "sqlite"
    fresh_url = str(tmp_path / "fresh.db") if is_file else request.getfixturevalue("postgres").create_database()
    for address in (url, fresh_url):
        open_and_close(address)
    reader, fresh = (RecordingReader(parse_dsn(address)) for address in (url, fresh_url))
    assert reader.run(schema) == fresh.run(schema)


def test_store_of_0_2_keeps_everything_and_exports_older_truths(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_old_store(url)
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


def test_store_of_0_3_0_keeps_its_metadata(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_old_store(url)
    documents = execute(url, "SELECT number, metadata FROM inferences ORDER BY number")
    open_and_close(url)
    before = contents(url)
    execute(url, "DROP TABLE recordings_metadata")
    execute(url, "ALTER TABLE recordings ADD COLUMN metadata TEXT NOT NULL DEFAULT '[]'")
    for row in documents:
        document = row["metadata"].replace("'", "''")
        execute(url, f"UPDATE recordings SET metadata = '{document}' WHERE number = {row['number']}")
    execute(url, "UPDATE inference_schema SET version = 3")
    open_and_close(url)
    assert contents(url) == before


COPIES = 1500


@pytest.mark.slow
def test_kills_during_the_migration_lose_nothing(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_old_store(url)
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
