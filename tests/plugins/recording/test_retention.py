"""Deletion of records and images after their retention time."""

import hashlib
import os
from pathlib import Path

import pytest

from app.plugins.recording.images import ImageFile, ImageFolder, image_path
from app.plugins.recording.retention import Retention
from tests.plugins.recording.memory_store import MemoryStore
from tests.plugins.recording.stores.test_stores import rows


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_old_records_are_deleted_in_batches(clock: Clock) -> None:
    store = MemoryStore()
    store.rows = rows(1200, started=int((clock.now - 101) * 1e6)) + rows(3, started=int((clock.now - 99) * 1e6))
    retention = Retention(store, None, 100, None, clock, clock)
    while (due := retention.due) is not None and len(store.deleted) < 3:
        clock.now += due
        retention.step()
    assert store.deleted == [500, 500, 200]
    assert len(store.rows) == 3
    assert due == 60


def test_clock_set_back_does_not_stop_deletion(clock: Clock) -> None:
    steady, store = Clock(), MemoryStore()
    retention = Retention(store, None, 100, None, clock, steady)
    retention.step()
    clock.now -= 1_000_000
    assert retention.due == 60
    for deletions, seconds in ((1, 59), (2, 1)):
        steady.now += seconds
        retention.step()
        assert len(store.deleted) == deletions


def test_clock_set_ahead_pauses_deletion_until_it_is_steady(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    steady, store = Clock(), MemoryStore()
    store.rows = rows(3, started=int(clock.now * 1e6))
    retention = Retention(store, None, 100, None, clock, steady)

    def advance(seconds: float) -> None:
        clock.now += seconds
        steady.now += seconds
        retention.step()

    advance(50)
    clock.now += 3 * 365 * 24 * 3600
    for _ in range(59):
        advance(60)
    assert store.deleted == [0]
    assert len(store.rows) == 3
    assert [record.getMessage() for record in caplog.records] == ["deletion paused after a clock change"]
    for _ in range(3):
        advance(60)
    assert store.deleted == [0, 3, 0], "a clock that is steady for an hour is trusted"


def test_clock_set_ahead_and_corrected_deletes_nothing(clock: Clock) -> None:
    steady, store = Clock(), MemoryStore()
    store.rows = rows(3, started=int(clock.now * 1e6))
    retention = Retention(store, None, 1000, None, clock, steady)
    retention.step()
    clock.now += 10_000
    retention.step()
    clock.now -= 10_000
    for _ in range(70):
        clock.now += 10
        steady.now += 10
        retention.step()
    assert len(store.rows) == 3


def test_old_unused_image_is_deleted(clock: Clock, tmp_path: Path) -> None:
    images = [ImageFile(hashlib.sha256(content).hexdigest(), content) for content in (b"unused", b"used", b"new")]
    folder = ImageFolder(tmp_path, durable=False)
    folder.open()
    folder.write(images)
    paths = [image_path(tmp_path, image.digest) for image in images]
    for path in paths[:2]:
        os.utime(path, (clock.now - 101, clock.now - 101))
    store = MemoryStore()
    store.in_use = {images[1].digest}
    retention = Retention(store, folder, None, 100, clock, clock)
    for _ in range(256):
        clock.now += retention.due or 0
        retention.step()
        os.utime(paths[2], (clock.now, clock.now))
    assert [path.exists() for path in paths] == [False, True, True]
    assert Retention(store, folder, None, None, clock).due is None
    assert store.forgotten == [images[0].digest]
