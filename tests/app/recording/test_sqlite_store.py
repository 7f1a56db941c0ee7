"""A file, and what may happen to it."""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.recording.sqlite_store import SqliteStore
from app.recording.store import StoreError, StoreFault
from app.settings.server import SettingsError
from tests.app.recording.contents import contents, select
from tests.app.recording.small_disk import fill, small_disk
from tests.app.recording.test_stores import rows


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(file: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(file, patience=0.05)
    store.open()
    yield store
    store.close()


def test_commits_are_on_the_disk_before_they_count(store: SqliteStore, file: Path) -> None:
    with sqlite3.connect(file) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_a_lock_is_waited_for_and_told(store: SqliteStore, file: Path) -> None:
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="locked") as refused:
        store.write(rows())
    assert refused.value.fault is StoreFault.LOCKED
    other.execute("ROLLBACK")
    other.close()
    store.write(rows())
    assert len(contents(str(file))) == 1


def test_a_full_disk_loses_nothing_of_what_is_there(tmp_path: Path) -> None:
    with small_disk(tmp_path) as disk:
        file = disk / "store.db"
        store = SqliteStore(file, patience=0.05)
        store.open()
        store.write(rows())
        ballast = disk / "ballast"
        fill(ballast)
        with pytest.raises(StoreError, match="full") as refused:
            store.write(rows(200))
        assert refused.value.fault is StoreFault.FULL
        assert len(contents(str(file))) == 1
        ballast.unlink()
        store.write(rows(200))
        assert len(contents(str(file))) == 201
        store.close()


def test_a_damaged_store_is_told_and_can_be_replaced(store: SqliteStore, file: Path) -> None:
    store.write(rows(200))
    store.close()
    size = file.stat().st_size
    with file.open("r+b") as damaged:
        damaged.seek(4096)
        damaged.write(os.urandom(size - 4096))
    with pytest.raises(StoreError, match="malformed") as refused:
        store.write(rows())
    assert refused.value.fault is StoreFault.DAMAGED
    file.unlink()
    store.write(rows())
    assert len(contents(str(file))) == 1


def test_another_file_is_no_store(file: Path) -> None:
    file.write_bytes(b"certainly not a database" * 1000)
    with pytest.raises(StoreError, match="not a database") as refused:
        SqliteStore(file).open()
    assert refused.value.fault is StoreFault.DAMAGED


def test_the_database_of_something_else_is_left_alone(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE bookmarks (title)")
    connection.close()
    before = file.read_bytes()
    with pytest.raises(SettingsError, match="something else"):
        SqliteStore(file).open()
    assert file.read_bytes() == before


def test_a_name_that_looks_like_an_address_of_sqlite_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore(Path("file:x.db?mode=memory"))
    store.open()
    store.close()
    assert (tmp_path / "file:x.db?mode=memory").exists()


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="unable to open") as refused:
        SqliteStore(tmp_path / "nowhere" / "store.db").open()
    assert refused.value.fault is StoreFault.FAILED


@pytest.mark.parametrize("how", ["delete", "move"])
def test_a_file_that_was_taken_away_is_made_anew(store: SqliteStore, file: Path, how: str) -> None:
    store.write(rows())
    for part in file.parent.iterdir():
        if how == "delete":
            part.unlink()
        else:
            part.rename(part.with_name(part.name.replace("store", "old")))
    store.write(rows())
    assert len(contents(str(file))) == 1


def test_the_planner_is_told_how_often_values_repeat(store: SqliteStore, file: Path) -> None:
    store.write(rows(1000))
    counted = {each["idx"] for each in select(str(file), "SELECT idx FROM sqlite_stat1")}
    assert {"inference_metadata_tv", "inference_labels_label", "inferences_started"} <= counted
