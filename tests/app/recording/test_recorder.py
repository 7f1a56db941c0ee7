"""Recording beside the engine: what waits, what is refused, what is dropped."""

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from app.recording.conversion import Conversion
from app.recording.images import ImageFolder, image_path
from app.recording.recorder import Recorder, sampled
from app.recording.redaction import Redaction
from app.recording.report import Report
from app.recording.retention import Retention
from app.recording.store import StoreError, StoreFault
from app.recording.writer import Writer
from app.settings.server import SettingsError
from tasks.exchange.error import ErrorKind, InferenceError
from tests.app.recording.memory_store import MemoryStore
from tests.support.recordings import detected, refused


class Recording:
    """A recorder over a store in memory, and its metrics."""

    def __init__(
        self,
        *,
        acknowledging: bool,
        queue: int = 100,
        fraction: float = 1,
        images: Path | None = None,
        longest_write: float = 10,
        keep: float | None = None,
    ) -> None:
        self.store = MemoryStore()
        self.metrics = CollectorRegistry()
        folder = None if images is None else ImageFolder(images, durable=True)
        report = Report(self.metrics, "a store")
        retention = Retention(self.store, folder, keep, None)
        writer = Writer(
            self.store,
            folder,
            retention,
            report,
            awaited=acknowledging,
            most_waiting=queue,
            longest_write=longest_write,
        )
        conversion = Conversion(Redaction(()), keep_images=images is not None)
        self.recorder = Recorder(conversion, writer, report, fraction, acknowledging=acknowledging)

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.get_sample_value(f"charioteer_recording_{name}", labels)


@pytest.fixture
def awaited() -> Iterator[Recording]:
    recording = Recording(acknowledging=True)
    recording.recorder.start()
    yield recording
    recording.recorder.close(10)


def failure(kept: "Future[None] | None") -> InferenceError:
    assert kept is not None
    error = kept.exception(10)
    assert isinstance(error, InferenceError)
    return error


def done(kept: "Future[None] | None") -> None:
    assert kept is not None
    assert kept.result(60) is None


def test_an_answer_waits_until_it_is_kept(awaited: Recording) -> None:
    awaited.store.gate.clear()
    kept = awaited.recorder.keep(detected())
    assert kept is not None
    assert awaited.store.reached.wait(60)
    assert not kept.done()
    awaited.store.gate.set()
    done(kept)
    assert len(awaited.store.rows) == 1
    assert awaited.metric("recorded_total") == 1
    assert awaited.metric("up") == 1
    assert awaited.metric("commit_seconds_count") == 1


def test_what_waits_is_written_together(awaited: Recording) -> None:
    awaited.store.gate.clear()
    first = awaited.recorder.keep(detected())
    assert awaited.store.reached.wait(60)
    others = [awaited.recorder.keep(detected()) for _ in range(20)]
    assert awaited.metric("queue") == 20
    awaited.store.gate.set()
    for each in (first, *others):
        done(each)
    assert awaited.store.batches == [1, 20]


def test_a_store_that_fails_refuses_at_once_and_heals(awaited: Recording, caplog: pytest.LogCaptureFixture) -> None:
    awaited.store.fault = StoreFault.FULL
    with caplog.at_level(logging.WARNING):
        refusals = [failure(awaited.recorder.keep(detected())) for _ in range(20)]
        assert {each.kind for each in refusals} == {ErrorKind.MODEL_NOT_READY}
        assert {str(each) for each in refusals} == {"The inference could not be recorded: its store is full"}
        attempts = awaited.metric("failures_total", fault="full")
        assert attempts is not None
        assert attempts < 20
        assert awaited.metric("up") == 0
        assert awaited.metric("dropped_total", reason="full") == 20
        assert awaited.recorder.refusing == str(refusals[0]), "so that readiness can say it"
        awaited.store.fault = None
        while awaited.metric("up") == 0:
            kept = awaited.recorder.keep(detected())
            assert kept is not None
            kept.exception(10)
    done(awaited.recorder.keep(detected()))
    assert awaited.recorder.refusing == ""
    said = [each.message for each in caplog.records]
    assert said == ["the store of recordings failed", "the store of recordings works again"]


def test_one_that_the_store_does_not_take_is_refused_alone(awaited: Recording) -> None:
    awaited.store.poison = "poison"
    awaited.store.gate.clear()
    kept = [awaited.recorder.keep(detected(model_name="poison" if place == 5 else "m")) for place in range(9)]
    awaited.store.gate.set()
    for place, each in enumerate(kept):
        if place == 5:
            assert str(failure(each)) == "The inference could not be recorded: its store rejected it"
        else:
            done(each)
    assert len(awaited.store.rows) == 8
    assert awaited.metric("dropped_total", reason="rejected") == 1
    assert awaited.metric("up") == 1


def test_more_than_may_wait_are_refused() -> None:
    recording = Recording(acknowledging=True, queue=3)
    recording.recorder.start()
    recording.store.gate.clear()
    recording.recorder.keep(detected())
    assert recording.store.reached.wait(60)
    waiting = [recording.recorder.keep(detected()) for _ in range(3)]
    late = failure(recording.recorder.keep(detected()))
    assert str(late) == "The inference could not be recorded: its store does not keep up"
    assert recording.metric("dropped_total", reason="behind") == 1
    recording.store.gate.set()
    for each in waiting:
        done(each)
    recording.recorder.close(10)


def test_a_disk_that_does_not_come_back_is_not_waited_for() -> None:
    recording = Recording(acknowledging=True, longest_write=0.2)
    recording.recorder.start()
    recording.store.gate.clear()
    first = recording.recorder.keep(detected())
    assert recording.store.reached.wait(60)
    second = recording.recorder.keep(detected())
    for each in (first, second, recording.recorder.keep(detected())):
        assert str(failure(each)) == "The inference could not be recorded: its store failed"
    assert recording.metric("up") == 0
    recording.store.gate.set()
    while recording.metric("up") == 0:
        recording.recorder.keep(detected())
    recording.recorder.close(10)
    assert len(recording.store.rows) >= 1


def test_without_acknowledgement_nobody_waits_and_nothing_is_lost_while_the_store_is_away() -> None:
    recording = Recording(acknowledging=False)
    recording.store.fault = StoreFault.UNREACHABLE
    recording.recorder.start()
    assert [recording.recorder.keep(detected()) for _ in range(5)] == [None] * 5
    assert recording.store.failed.acquire(timeout=60)
    assert recording.store.failed.acquire(timeout=60)
    assert recording.metric("up") == 0
    recording.store.fault = None
    recording.recorder.close(10)
    assert len(recording.store.rows) == 5
    assert recording.metric("recorded_total") == 5
    assert recording.store.closed


def test_without_acknowledgement_what_does_not_fit_is_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    recording = Recording(acknowledging=False, queue=3)
    assert recording.metric("up") == 1
    recording.recorder.start()
    recording.store.gate.clear()
    recording.recorder.keep(detected())
    assert recording.store.reached.wait(60)
    with caplog.at_level(logging.ERROR):
        assert [recording.recorder.keep(detected()) for _ in range(8)] == [None] * 8
    assert recording.metric("dropped_total", reason="behind") == 5
    assert len(caplog.records) == 1
    recording.store.gate.set()
    recording.recorder.close(10)
    assert len(recording.store.rows) == 4


def test_at_the_end_what_waits_is_written(awaited: Recording) -> None:
    awaited.store.gate.clear()
    kept = [awaited.recorder.keep(detected()) for _ in range(5)]
    awaited.store.gate.set()
    awaited.recorder.close(10)
    for each in kept:
        done(each)
    assert awaited.store.closed
    late = failure(awaited.recorder.keep(detected()))
    assert str(late) == "The inference could not be recorded: the server is stopping"


def test_at_the_end_a_store_that_is_away_is_not_waited_for_longer_than_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recording = Recording(acknowledging=False)
    recording.store.fault = StoreFault.UNREACHABLE
    recording.recorder.start()
    for _ in range(5):
        recording.recorder.keep(detected())
    with caplog.at_level(logging.ERROR):
        recording.recorder.close(0.1)
    assert recording.metric("dropped_total", reason="stopping") == 5
    assert "requests were not recorded before the end" in [each.message for each in caplog.records]


def test_a_store_that_fails_at_the_start_fails_the_start_of_who_waits_for_it() -> None:
    recording = Recording(acknowledging=True)
    recording.store.fault = StoreFault.UNREACHABLE
    with pytest.raises(StoreError, match="as told"):
        recording.recorder.start()


def test_images_are_there_before_their_records(tmp_path: Path) -> None:
    recording = Recording(acknowledging=True, images=tmp_path)
    recording.recorder.start()
    recording.store.gate.clear()
    kept = recording.recorder.keep(detected(picture=b"jpeg"))
    assert recording.store.reached.wait(60)
    recording.store.gate.set()
    done(kept)
    (rows,) = recording.store.rows
    assert rows.inference.image_kept
    assert image_path(tmp_path, rows.inference.image_digest or "").read_bytes() == b"jpeg"
    recording.recorder.close(10)


def test_a_disk_without_room_for_images_is_a_store_that_fails(tmp_path: Path) -> None:
    recording = Recording(acknowledging=True, images=tmp_path / "images")
    recording.recorder.start()
    for shard in (tmp_path / "images").iterdir():
        shard.rmdir()
        shard.write_bytes(b"")
    said = str(failure(recording.recorder.keep(detected())))
    assert said == "The inference could not be recorded: its store failed"
    assert recording.store.rows == []
    recording.recorder.close(10)


def test_a_disk_that_hangs_while_deleting_is_not_waited_for_either() -> None:
    recording = Recording(acknowledging=True, longest_write=0.2, keep=100)
    recording.store.deleting.clear()
    recording.recorder.start()
    assert recording.store.deleting_begun.wait(60)
    said = str(failure(recording.recorder.keep(detected())))
    assert said == "The inference could not be recorded: its store failed"
    recording.store.deleting.set()
    while (kept := recording.recorder.keep(detected())) is None or kept.exception(10) is not None:
        pass
    assert recording.metric("up") == 1
    recording.recorder.close(10)


def test_what_goes_wrong_while_deleting_does_not_end_recording(caplog: pytest.LogCaptureFixture) -> None:
    recording = Recording(acknowledging=True, keep=100)
    recording.store.delete_error = RuntimeError("nobody thought of this")
    with caplog.at_level(logging.ERROR):
        recording.recorder.start()
        for _ in range(3):
            done(recording.recorder.keep(detected()))
        recording.recorder.close(10)
    assert "recording went wrong" in [each.message for each in caplog.records]
    assert len(recording.store.rows) == 3


def test_a_store_that_was_replaced_by_a_later_one_is_a_store_that_fails(awaited: Recording) -> None:
    awaited.store.write_error = SettingsError("a later version")
    kept = [awaited.recorder.keep(detected()) for _ in range(3)]
    assert {str(failure(each)) for each in kept} == {"The inference could not be recorded: its store failed"}
    assert awaited.metric("dropped_total", reason="rejected") == 0
    assert awaited.metric("up") == 0


def test_what_cannot_be_written_down_is_refused_and_no_other(awaited: Recording) -> None:
    class Unspeakable:
        def records(self) -> Any:
            raise RuntimeError("no words")

    event = detected()
    assert event.answered is not None
    datum: Any = event.answered.data[0]
    broken = detected(
        answered=type(event.answered)(
            **_fields(event.answered, data=[type(datum)(**_fields(datum, prediction=Unspeakable()))])
        )
    )
    assert str(failure(awaited.recorder.keep(broken))).endswith("it cannot be converted for the store")
    assert awaited.metric("dropped_total", reason="unwritable") == 1
    done(awaited.recorder.keep(event))


def test_refusals_are_recorded_too(awaited: Recording) -> None:
    done(awaited.recorder.keep(refused()))
    (rows,) = awaited.store.rows
    assert rows.inference.error == "model_not_found"


def test_a_sample_is_of_the_events_and_a_larger_one_has_the_smaller() -> None:
    ids = [detected().id for _ in range(2000)]
    tenth = {each for each in ids if sampled(each, 0.1)}
    half = {each for each in ids if sampled(each, 0.5)}
    assert tenth < half
    assert 120 < len(tenth) < 280
    assert 880 < len(half) < 1120
    assert all(sampled(each, 1) for each in ("0" * 32, "f" * 32))


def test_what_is_not_in_the_sample_is_not_waited_for() -> None:
    recording = Recording(acknowledging=True, fraction=0.5)
    recording.recorder.start()
    assert recording.recorder.keep(detected(id="f" * 32)) is None
    done(recording.recorder.keep(detected(id="0" * 32)))
    assert len(recording.store.rows) == 1
    recording.recorder.close(10)


def _fields(struct: Any, **changed: Any) -> dict[str, Any]:
    return {**{name: getattr(struct, name) for name in struct.__struct_fields__}, **changed}
