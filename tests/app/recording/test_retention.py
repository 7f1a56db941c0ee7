"""What has had its time."""

import hashlib
import os
from pathlib import Path

import pytest

from app.recording.images import ImageFile, ImageFolder, image_path
from app.recording.retention import Retention
from tests.app.recording.memory_store import MemoryStore
from tests.app.recording.test_stores import rows


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_records_go_a_little_at_a_time_until_none_is_too_old(clock: Clock) -> None:
    store = MemoryStore()
    store.rows = rows(1200, started=int((clock.now - 101) * 1e6)) + rows(3, started=int((clock.now - 99) * 1e6))
    retention = Retention(store, None, 100, None, clock, clock)
    while (due := retention.due) is not None and len(store.deleted) < 3:
        clock.now += due
        retention.step()
    assert store.deleted == [500, 500, 200]
    assert len(store.rows) == 3
    assert due == 60


def test_nothing_is_done_before_it_is_due(clock: Clock) -> None:
    store = MemoryStore()
    retention = Retention(store, None, 100, None, clock, clock)
    retention.step()
    clock.now += 59
    retention.step()
    assert store.deleted == [0]


def test_a_clock_that_is_set_back_does_not_keep_what_is_too_old(clock: Clock) -> None:
    store = MemoryStore()
    retention = Retention(store, None, 100, None, clock, clock)
    retention.step()
    clock.now -= 1_000_000
    assert retention.due == 60
    retention.step()
    assert len(store.deleted) == 2


def test_a_clock_that_leaps_ahead_deletes_nothing_before_it_has_been_steady(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    steady, store = Clock(), MemoryStore()
    store.rows = rows(3, started=int(clock.now * 1e6))
    retention = Retention(store, None, 100, None, clock, steady)

    def pass_by(seconds: float) -> None:
        clock.now += seconds
        steady.now += seconds
        retention.step()

    pass_by(50)
    clock.now += 3 * 365 * 24 * 3600
    for _ in range(59):
        pass_by(60)
    assert store.deleted == [0]
    assert len(store.rows) == 3
    assert [each.getMessage() for each in caplog.records] == [
        "the clock was set; nothing is deleted until it has been steady"
    ]
    for _ in range(3):
        pass_by(60)
    assert store.deleted == [0, 3, 0], "who leaves it so for an hour means it"


def test_a_clock_that_is_set_right_again_has_lost_nothing(clock: Clock) -> None:
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


def test_what_is_kept_for_ever_is_never_due(clock: Clock) -> None:
    assert Retention(MemoryStore(), None, None, None, clock).due is None


def test_an_image_goes_when_no_inference_of_its_time_has_it(clock: Clock, tmp_path: Path) -> None:
    pictures = [ImageFile(hashlib.sha256(each).hexdigest(), each) for each in (b"unused", b"used", b"new")]
    folder = ImageFolder(tmp_path, durable=False)
    folder.open()
    folder.write(pictures)
    paths = [image_path(tmp_path, each.digest) for each in pictures]
    for path in paths[:2]:
        os.utime(path, (clock.now - 101, clock.now - 101))
    store = MemoryStore()
    store.in_use = {pictures[1].digest}
    retention = Retention(store, folder, None, 100, clock, clock)
    for _ in range(256):
        clock.now += retention.due or 0
        retention.step()
        os.utime(paths[2], (clock.now, clock.now))
    assert [each.exists() for each in paths] == [False, True, True]
    assert store.forgotten == [pictures[0].digest]
