"""Deletion of records and images after their retention time."""

import hashlib
import os
from pathlib import Path

import pytest

from app.plugins.recording.images import ImageFile, ImageFolder, image_path
from app.plugins.recording.retention import Retention
from tests.plugins.recording.memory_store import MemoryStore
from tests.plugins.recording.stores.test_stores import rows


class Deletion:
    """The deletion of records after `keep` seconds, with a time of day and a steady clock that the test sets."""

    def __init__(self, keep: float | None = 100, folder: ImageFolder | None = None, keep_images: float | None = None):
        self.now, self.steady, self.store = 1_000_000.0, 0.0, MemoryStore()
        clocks = lambda: self.now, lambda: self.steady
        self.retention = Retention(self.store, folder, keep, keep_images, *clocks)

    def record(self, count: int, age: float = 0) -> None:
        self.store.rows += rows(count, started=int((self.now - age) * 1e6))

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


def test_clock_set_ahead_and_corrected_deletes_nothing() -> None:
    deletion = Deletion(1000)
    deletion.record(3)
    deletion.advance(0)
    deletion.now += 10_000
    deletion.retention.step()
    deletion.now -= 10_000
    for _ in range(70):
        deletion.advance(10)
    assert len(deletion.store.rows) == 3


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
