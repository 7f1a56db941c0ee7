"""The folder of recorded images, and deletion of records and images after their retention time."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from app.plugins.recording.images import SHARDS, ImageFile, ImageFolder, image_path
from app.plugins.recording.retention import Retention
from app.plugins.recording.stores.store import StoreError
from tests.plugins.recording.memory_store import MemoryStore
from tests.plugins.recording.stores.test_stores import rows


class Deletion:
    """The deletion of records after `keep` seconds, with a time of day and a steady clock that the test sets."""

    def __init__(self, keep: float | None = 100, folder: ImageFolder | None = None, keep_images: float | None = None):
        self.now, self.steady, self.store = 1_000_000.0, 0.0, MemoryStore()
        clocks = lambda: self.now, lambda: self.steady
        self.retention = Retention(self.store, folder, keep, keep_images, *clocks)

    def record(self, count: int, age: float = 0) -> None:
        self.store.rows += rows(started=int((self.now - age) * 1e6)) * count

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.steady += seconds
        self.retention.step()


def test_old_records_are_deleted_in_batches() -> None:
    deletion = Deletion()
    deletion.record(1200, age=101)
    deletion.record(3, age=99)
    for _ in range(3):
        deletion.advance(deletion.retention.due or 0)
    assert deletion.store.deleted == [500, 500, 200]
    assert len(deletion.store.rows) == 3
    assert deletion.retention.due == 60


def test_clock_set_back_does_not_stop_deletion() -> None:
    deletion = Deletion()
    deletion.advance(0)
    deletion.now -= 1_000_000
    assert deletion.retention.due == 60
    for deletions, seconds in ((1, 59), (2, 1)):
        deletion.advance(seconds)
        assert len(deletion.store.deleted) == deletions


def test_clock_set_ahead_pauses_deletion_until_it_is_steady(caplog: pytest.LogCaptureFixture) -> None:
    deletion = Deletion()
    deletion.record(3)
    deletion.advance(50)
    deletion.now += 3 * 365 * 24 * 3600
    for _ in range(59):
        deletion.advance(60)
    assert deletion.store.deleted == [0]
    assert caplog.messages == ["deletion paused after a clock change"]
    for _ in range(3):
        deletion.advance(60)
    assert deletion.store.deleted == [0, 3, 0], "a clock that is steady for an hour is trusted"


def test_old_unused_image_is_deleted(tmp_path: Path) -> None:
    images = [ImageFile(hashlib.sha256(content).hexdigest(), content) for content in (b"unused", b"used", b"new")]
    folder = ImageFolder(tmp_path, durable=False)
    folder.open()
    folder.write(images)
    paths = [image_path(tmp_path, image.digest) for image in images]
    deletion = Deletion(None, folder, keep_images=100)
    for path in paths[:2]:
        os.utime(path, (deletion.now - 101, deletion.now - 101))
    deletion.store.in_use = {images[1].digest}
    for _ in range(256):
        deletion.advance(deletion.retention.due or 0)
        os.utime(paths[2], (deletion.now, deletion.now))
    assert [path.exists() for path in paths] == [False, True, True]
    assert Deletion(None, folder).retention.due is None
    assert deletion.store.forgotten == [images[0].digest]


IMAGE = ImageFile(hashlib.sha256(b"one").hexdigest(), b"one")


@pytest.fixture
def folder(tmp_path: Path) -> ImageFolder:
    folder = ImageFolder(tmp_path, durable=True)
    folder.open()
    return folder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return image_path(tmp_path, IMAGE.digest)


def unused(folder: ImageFolder) -> list[str]:
    return [digest for shard in range(SHARDS) for digest in folder.find_unused(shard, 1000)]


def test_repeated_image_is_stored_once_and_counts_as_new(folder: ImageFolder, tmp_path: Path, path: Path) -> None:
    folder.write([IMAGE, ImageFile("ab" * 32, b"two"), IMAGE])
    assert path.read_bytes() == b"one"
    assert len([file for file in tmp_path.rglob("*") if file.is_file()]) == 2
    os.utime(path, (0, 0))
    assert unused(folder) == [IMAGE.digest]
    folder.write([IMAGE])
    assert unused(folder) == []
    assert folder.remove([IMAGE.digest], 1000) == []
    assert path.exists()


def test_only_old_files_are_removed(folder: ImageFolder, tmp_path: Path, path: Path) -> None:
    new = ImageFile("ab" * 32, b"new")
    folder.write([IMAGE, new])
    os.utime(path, (0, 0))
    # A link to nothing does not keep them.
    path.with_name("link").symlink_to(tmp_path / "nothing")
    assert unused(folder) == [IMAGE.digest]
    assert folder.remove([IMAGE.digest, new.digest, "00" * 32], 1000) == [IMAGE.digest, "00" * 32]
    assert not path.exists()
    assert image_path(tmp_path, new.digest).exists()


def test_leftover_of_a_killed_write_is_removed_and_foreign_files_are_kept(
    folder: ImageFolder, tmp_path: Path, path: Path
) -> None:
    leftover = path.with_name(f"{IMAGE.digest}.77.123")
    others = [tmp_path / "ab" / name for name in ("README", ".hidden", "cd" * 31, "notes.1.txt")]
    for file in (leftover, *others):
        file.write_bytes(b"o")
        os.utime(file, (0, 0))
    assert unused(folder) == []
    assert not leftover.exists()
    assert all(other.exists() for other in others)


def test_failed_write_leaves_no_file(tmp_path: Path, path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(StoreError, match="Is a directory"):
        ImageFolder(tmp_path, durable=False).write([IMAGE])
    assert list(path.parent.iterdir()) == [path]


def test_removed_folder_and_empty_file_are_written_again(folder: ImageFolder, tmp_path: Path, path: Path) -> None:
    shutil.rmtree(tmp_path)
    folder.write([IMAGE])
    assert path.read_bytes() == b"one"
    path.write_bytes(b"")
    folder.write([IMAGE])
    assert path.read_bytes() == b"one"
