"""The SQLite store, also when its file is locked, damaged or missing."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from app.core.settings.server import SettingsError
from app.plugins.recording.stores.sqlite_store import SqliteStore
from app.plugins.recording.stores.store import StoreError, StoreFault
from tests.plugins.recording.contents import contents, execute
from tests.plugins.recording.stores.test_stores import rows


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(file: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(file, busy_timeout=0.05)
    store.open()
    yield store
    store.close()


def test_rows_of_a_killed_server_move_with_the_write_ahead_log(store: SqliteStore, file: Path) -> None:
    store.write(rows())
    # Files of a store that is still open are what a killed server leaves.
    copy = shutil.copy(file, file.with_name("copy.db"))
    shutil.copy(f"{file}-wal", f"{copy}-wal")
    assert len(contents(str(copy))) == 1
    store.close()
    assert not Path(f"{file}-wal").exists()


def test_lock_timeout_is_reported(store: SqliteStore, file: Path) -> None:
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="locked", check=lambda error: error.fault is StoreFault.LOCKED):
        store.write(rows())
    other.execute("ROLLBACK")
    other.close()
    store.write(rows())
    assert len(contents(str(file))) == 1


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of two megabytes."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a file system can be mounted by root only")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_full_disk_is_reported_and_keeps_stored_rows(disk: Path) -> None:
    file, ballast = disk / "store.db", disk / "ballast"
    store = SqliteStore(file, busy_timeout=0.05)
    store.write(rows())
    with suppress(OSError), ballast.open("wb", buffering=0) as rest:
        while True:
            rest.write(bytes(4096))
    with pytest.raises(StoreError, match="full", check=lambda error: error.fault is StoreFault.FULL):
        store.write(rows(200))
    assert len(contents(str(file))) == 1
    ballast.unlink()
    store.write(rows(200))
    assert len(contents(str(file))) == 201
    store.close()


def test_damaged_store_is_reported_and_can_be_replaced(store: SqliteStore, file: Path) -> None:
    store.write(rows(200))
    store.close()
    size = file.stat().st_size
    with file.open("r+b") as damaged:
        damaged.seek(4096)
        damaged.write(os.urandom(size - 4096))
    with pytest.raises(StoreError, match="malformed", check=lambda error: error.fault is StoreFault.DAMAGED):
        store.write(rows())
    file.unlink()
    store.write(rows())
    assert len(contents(str(file))) == 1


def test_file_that_cannot_be_opened_is_reported(file: Path) -> None:
    file.write_bytes(b"certainly not a database" * 1000)
    with pytest.raises(StoreError, match="not a database", check=lambda error: error.fault is StoreFault.DAMAGED):
        SqliteStore(file).open()
    with pytest.raises(StoreError, match="unable to open", check=lambda error: error.fault is StoreFault.FAILED):
        SqliteStore(file.parent / "nowhere" / "store.db").open()


def test_foreign_database_is_left_unchanged(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE bookmarks (title)")
    connection.close()
    before = file.read_bytes()
    with pytest.raises(SettingsError, match="something else"):
        SqliteStore(file).open()
    assert file.read_bytes() == before


def test_name_that_looks_like_sqlite_uri_is_a_file_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore(Path("file:x.db?mode=memory"))
    store.open()
    store.close()
    assert (tmp_path / "file:x.db?mode=memory").exists()


@pytest.mark.parametrize("removal", ["delete", "move"])
def test_removed_file_is_created_again(store: SqliteStore, file: Path, removal: str) -> None:
    store.write(rows())
    for path in file.parent.iterdir():
        path.unlink() if removal == "delete" else path.rename(path.with_name(path.name.replace("store", "old")))
    store.write(rows())
    assert len(contents(str(file))) == 1


def test_statistics_for_the_query_planner_are_collected(store: SqliteStore, file: Path) -> None:
    store.write(rows(1000))
    indexes = {row["idx"] for row in execute(str(file), "SELECT idx FROM sqlite_stat1")}
    assert {"inference_labels_label", "recordings_started"} <= indexes
