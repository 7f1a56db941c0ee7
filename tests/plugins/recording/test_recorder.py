"""Recording of events: which ones wait, are rejected or are dropped."""

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from app.core.settings.server import SettingsError
from app.plugins.recording.images import ImageFolder, image_path
from app.plugins.recording.recorder import Recorder, is_sampled, random_sample
from app.plugins.recording.recording_metrics import RecordingMetrics
from app.plugins.recording.retention import Retention
from app.plugins.recording.row_converter import Redaction, RowConverter
from app.plugins.recording.stores.store import StoreError, StoreFault
from app.plugins.recording.writer import Writer
from tasks.inference.error import ErrorKind, InferenceError
from tests.plugins.recording.memory_store import MemoryStore
from tests.support.data.inference_events import detection_event, refused_event


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
        keep_seconds: float | None = None,
    ) -> None:
        self.store = MemoryStore()
        self.metrics = CollectorRegistry()
        folder = None if images is None else ImageFolder(images, durable=True)
        report = RecordingMetrics(self.metrics, "a store")
        retention = Retention(self.store, folder, keep_seconds, None)
        writer = Writer(
            self.store,
            folder,
            retention,
            report,
            acknowledge=acknowledging,
            max_queued=queue,
            write_timeout=longest_write,
        )
        conversion = RowConverter(Redaction(()), keep_images=images is not None)
        self.recorder = Recorder(conversion, writer, report, random_sample(fraction))

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.get_sample_value(f"charioteer_recording_{name}", labels)


@pytest.fixture
def recording() -> Iterator[Recording]:
    recording = Recording(acknowledging=True)
    recording.recorder.start()
    yield recording
    recording.recorder.close(10)


def failure(recorded: "Future[None] | None") -> InferenceError:
    assert recorded is not None
    error = recorded.exception(10)
    assert isinstance(error, InferenceError)
    return error


def wait_recorded(recorded: "Future[None] | None") -> None:
    assert recorded is not None
    assert recorded.result(60) is None


def test_answer_waits_until_it_is_recorded(recording: Recording) -> None:
    recording.store.write_gate.clear()
    recorded = recording.recorder.record(detection_event())
    assert recorded is not None
    assert recording.store.write_started.wait(60)
    assert not recorded.done()
    recording.store.write_gate.set()
    wait_recorded(recorded)
    assert len(recording.store.rows) == 1
    assert recording.metric("recorded_total") == 1
    assert recording.metric("up") == 1
    assert recording.metric("commit_seconds_count") == 1


def test_waiting_events_are_written_in_one_batch(recording: Recording) -> None:
    recording.store.write_gate.clear()
    first = recording.recorder.record(detection_event())
    assert recording.store.write_started.wait(60)
    others = [recording.recorder.record(detection_event()) for _ in range(20)]
    assert recording.metric("queue") == 20
    recording.store.write_gate.set()
    for future in (first, *others):
        wait_recorded(future)
    assert recording.store.batches == [1, 20]


def test_failing_store_rejects_immediately_and_recovers(recording: Recording, caplog: pytest.LogCaptureFixture) -> None:
    recording.store.fault = StoreFault.FULL
    with caplog.at_level(logging.WARNING):
        errors = [failure(recording.recorder.record(detection_event())) for _ in range(20)]
        assert {error.kind for error in errors} == {ErrorKind.MODEL_NOT_READY}
        assert {str(error) for error in errors} == {"The inference could not be recorded: its store is full"}
        attempts = recording.metric("failures_total", fault="full")
        assert attempts is not None
        assert attempts < 20
        assert recording.metric("up") == 0
        assert recording.metric("dropped_total", reason="full") == 20
        assert recording.recorder.unavailable_reason == str(errors[0]), "readiness reports this reason"
        recording.store.fault = None
        while recording.metric("up") == 0:
            recorded = recording.recorder.record(detection_event())
            assert recorded is not None
            recorded.exception(10)
    wait_recorded(recording.recorder.record(detection_event()))
    assert recording.recorder.unavailable_reason == ""
    messages = [record.message for record in caplog.records]
    assert messages == ["the store of recordings failed", "the store of recordings works again"]


def test_event_rejected_by_store_fails_alone(recording: Recording) -> None:
    recording.store.poison = "poison"
    recording.store.write_gate.clear()
    recorded = [
        recording.recorder.record(detection_event(model_name="poison" if index == 5 else "m")) for index in range(9)
    ]
    recording.store.write_gate.set()
    for index, future in enumerate(recorded):
        if index == 5:
            assert str(failure(future)) == "The inference could not be recorded: its store rejected it"
        else:
            wait_recorded(future)
    assert len(recording.store.rows) == 8
    assert recording.metric("dropped_total", reason="rejected") == 1
    assert recording.metric("up") == 1


def test_events_above_queue_limit_are_rejected() -> None:
    recording = Recording(acknowledging=True, queue=3)
    recording.recorder.start()
    recording.store.write_gate.clear()
    recording.recorder.record(detection_event())
    assert recording.store.write_started.wait(60)
    waiting = [recording.recorder.record(detection_event()) for _ in range(3)]
    late = failure(recording.recorder.record(detection_event()))
    assert str(late) == "The inference could not be recorded: its store does not keep up"
    assert recording.metric("dropped_total", reason="behind") == 1
    recording.store.write_gate.set()
    for future in waiting:
        wait_recorded(future)
    recording.recorder.close(10)


def test_hanging_write_fails_waiting_events() -> None:
    recording = Recording(acknowledging=True, longest_write=0.2)
    recording.recorder.start()
    recording.store.write_gate.clear()
    first = recording.recorder.record(detection_event())
    assert recording.store.write_started.wait(60)
    second = recording.recorder.record(detection_event())
    for future in (first, second, recording.recorder.record(detection_event())):
        assert str(failure(future)) == "The inference could not be recorded: its store failed"
    assert recording.metric("up") == 0
    recording.store.write_gate.set()
    while recording.metric("up") == 0:
        recording.recorder.record(detection_event())
    recording.recorder.close(10)
    assert len(recording.store.rows) >= 1


def test_best_effort_recording_keeps_events_while_store_is_unreachable() -> None:
    recording = Recording(acknowledging=False)
    recording.store.fault = StoreFault.UNREACHABLE
    recording.recorder.start()
    assert [recording.recorder.record(detection_event()) for _ in range(5)] == [None] * 5
    assert recording.store.failed.acquire(timeout=60)
    assert recording.store.failed.acquire(timeout=60)
    assert recording.metric("up") == 0
    recording.store.fault = None
    recording.recorder.close(10)
    assert len(recording.store.rows) == 5
    assert recording.metric("recorded_total") == 5
    assert recording.store.closed


def test_best_effort_recording_drops_and_counts_events_above_queue_limit(caplog: pytest.LogCaptureFixture) -> None:
    recording = Recording(acknowledging=False, queue=3)
    assert recording.metric("up") == 1
    recording.recorder.start()
    recording.store.write_gate.clear()
    recording.recorder.record(detection_event())
    assert recording.store.write_started.wait(60)
    with caplog.at_level(logging.ERROR):
        assert [recording.recorder.record(detection_event()) for _ in range(8)] == [None] * 8
    assert recording.metric("dropped_total", reason="behind") == 5
    assert len(caplog.records) == 1
    recording.store.write_gate.set()
    recording.recorder.close(10)
    assert len(recording.store.rows) == 4


def test_close_writes_waiting_events(recording: Recording) -> None:
    recording.store.write_gate.clear()
    recorded = [recording.recorder.record(detection_event()) for _ in range(5)]
    recording.store.write_gate.set()
    recording.recorder.close(10)
    for future in recorded:
        wait_recorded(future)
    assert recording.store.closed
    late = failure(recording.recorder.record(detection_event()))
    assert str(late) == "The inference could not be recorded: the server is stopping"


def test_close_waits_for_unreachable_store_only_until_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recording = Recording(acknowledging=False)
    recording.store.fault = StoreFault.UNREACHABLE
    recording.recorder.start()
    for _ in range(5):
        recording.recorder.record(detection_event())
    with caplog.at_level(logging.ERROR):
        recording.recorder.close(0.1)
    assert recording.metric("dropped_total", reason="stopping") == 5
    assert "requests were not recorded before the end" in [record.message for record in caplog.records]


def test_start_fails_when_store_is_unreachable() -> None:
    recording = Recording(acknowledging=True)
    recording.store.fault = StoreFault.UNREACHABLE
    with pytest.raises(StoreError, match="as configured"):
        recording.recorder.start()


def test_image_is_stored_with_its_record(tmp_path: Path) -> None:
    recording = Recording(acknowledging=True, images=tmp_path)
    recording.recorder.start()
    recording.store.write_gate.clear()
    recorded = recording.recorder.record(detection_event(image_bytes=b"jpeg"))
    assert recording.store.write_started.wait(60)
    recording.store.write_gate.set()
    wait_recorded(recorded)
    (rows,) = recording.store.rows
    assert rows.inference["image_kept"]
    assert image_path(tmp_path, rows.inference["image_digest"] or "").read_bytes() == b"jpeg"
    recording.recorder.close(10)


def test_unwritable_image_folder_fails_recording(tmp_path: Path) -> None:
    recording = Recording(acknowledging=True, images=tmp_path / "images")
    recording.recorder.start()
    for shard in (tmp_path / "images").iterdir():
        shard.rmdir()
        shard.write_bytes(b"")
    message = str(failure(recording.recorder.record(detection_event())))
    assert message == "The inference could not be recorded: its store failed"
    assert recording.store.rows == []
    recording.recorder.close(10)


def test_hanging_delete_fails_waiting_events() -> None:
    recording = Recording(acknowledging=True, longest_write=0.2, keep_seconds=100)
    recording.store.delete_gate.clear()
    recording.recorder.start()
    assert recording.store.delete_started.wait(60)
    message = str(failure(recording.recorder.record(detection_event())))
    assert message == "The inference could not be recorded: its store failed"
    recording.store.delete_gate.set()
    while (recorded := recording.recorder.record(detection_event())) is None or recorded.exception(10) is not None:
        pass
    assert recording.metric("up") == 1
    recording.recorder.close(10)


def test_error_while_deleting_does_not_stop_recording(caplog: pytest.LogCaptureFixture) -> None:
    recording = Recording(acknowledging=True, keep_seconds=100)
    recording.store.delete_error = RuntimeError("unexpected")
    with caplog.at_level(logging.ERROR):
        recording.recorder.start()
        for _ in range(3):
            wait_recorded(recording.recorder.record(detection_event()))
        recording.recorder.close(10)
    assert "recording failed unexpectedly" in [record.message for record in caplog.records]
    assert len(recording.store.rows) == 3


def test_store_of_later_version_fails_recording(recording: Recording) -> None:
    recording.store.write_error = SettingsError("a later version")
    recorded = [recording.recorder.record(detection_event()) for _ in range(3)]
    assert {str(failure(future)) for future in recorded} == {"The inference could not be recorded: its store failed"}
    assert recording.metric("dropped_total", reason="rejected") == 0
    assert recording.metric("up") == 0


def test_unconvertible_event_is_rejected_alone(recording: Recording) -> None:
    class Unconvertible:
        def records(self) -> Any:
            raise RuntimeError("no words")

    event = detection_event()
    assert event.result is not None
    datum: Any = event.result.samples[0]
    broken = detection_event(
        result=type(event.result)(
            **_fields(event.result, samples=[type(datum)(**_fields(datum, prediction=Unconvertible()))])
        )
    )
    assert str(failure(recording.recorder.record(broken))).endswith("it cannot be converted for the store")
    assert recording.metric("dropped_total", reason="unwritable") == 1
    wait_recorded(recording.recorder.record(event))


def test_rejected_requests_are_recorded(recording: Recording) -> None:
    wait_recorded(recording.recorder.record(refused_event()))
    (rows,) = recording.store.rows
    assert rows.inference["error"] == "model_not_found"


def test_larger_sample_contains_smaller_sample() -> None:
    ids = [detection_event().id for _ in range(2000)]
    tenth = {event_id for event_id in ids if is_sampled(event_id, 0.1)}
    half = {event_id for event_id in ids if is_sampled(event_id, 0.5)}
    assert tenth < half
    assert 120 < len(tenth) < 280
    assert 880 < len(half) < 1120
    assert all(is_sampled(event_id, 1) for event_id in ("0" * 32, "f" * 32))


def test_events_outside_sample_are_not_recorded() -> None:
    recording = Recording(acknowledging=True, fraction=0.5)
    recording.recorder.start()
    assert recording.recorder.record(detection_event(id="f" * 32)) is None
    wait_recorded(recording.recorder.record(detection_event(id="0" * 32)))
    assert len(recording.store.rows) == 1
    recording.recorder.close(10)


def _fields(struct: Any, **changes: Any) -> dict[str, Any]:
    return {**{name: getattr(struct, name) for name in struct.__struct_fields__}, **changes}
