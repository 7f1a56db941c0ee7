"""Recording of events: which ones wait, are rejected or are dropped."""

import logging
import uuid
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from app.core.settings.server import SettingsError
from app.plugins.recording.images import ImageFolder
from app.plugins.recording.recorder import Recorder
from app.plugins.recording.recording_metrics import BEHIND, STOPPING, UNWRITABLE, RecordingMetrics
from app.plugins.recording.retention import Retention
from app.plugins.recording.row_converter import Redaction, RowConverter
from app.plugins.recording.rules import RuleSelector, is_sampled
from app.plugins.recording.stores.store import StoreFault
from app.plugins.recording.writer import Writer
from tasks.inference.error import ErrorKind, InferenceError
from tests.plugins.recording.memory_store import MemoryStore
from tests.support.data.inference_events import detection_event
from tests.support.polling import wait_until


class Recording:
    """A recorder over a store in memory, and its metrics."""

    def __init__(
        self, *, fraction: float = 1, images: Path | None = None, keep_seconds: float | None = None, **limits: Any
    ) -> None:
        self.store, self.metrics = MemoryStore(), CollectorRegistry()
        folder = None if images is None else ImageFolder(images, durable=True)
        report = RecordingMetrics(self.metrics, "a store")
        retention = Retention(self.store, folder, keep_seconds, None)
        limits = {"acknowledge": True, "max_queued": 100, "write_timeout": 10, **limits}
        writer = Writer(self.store, folder, retention, report, **limits)
        conversion = RowConverter(Redaction(()), keep_images=images is not None)
        selector = RuleSelector((), fraction, self.metrics)
        self.recorder = Recorder(conversion, writer, report, selector)

    def record(self, **event: Any) -> "Future[None] | None":
        return self.recorder.record(detection_event(**event))

    def hold(self) -> "Future[None] | None":
        """Record an event whose write waits until `write_gate` is set."""
        self.store.write_gate.clear()
        recorded = self.record()
        assert self.store.write_started.wait(60)
        return recorded

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.get_sample_value(f"charioteer_recording_{name}", labels)


@pytest.fixture
def start() -> Iterator[Callable[..., Recording]]:
    """Start recordings, and close their recorders at the end."""
    started: list[Recording] = []

    def start_recording(fault: StoreFault | None = None, hanging: str = "", **options: Any) -> Recording:
        recording = Recording(**options)
        recording.store.fault = fault
        started.append(recording)
        for operation, gate in (("write", recording.store.write_gate), ("delete", recording.store.delete_gate)):
            if operation == hanging:
                gate.clear()
        recording.recorder.writer.start()
        return recording

    yield start_recording
    for recording in started:
        recording.recorder.close(10)


@pytest.fixture
def recording(start: Callable[..., Recording]) -> Recording:
    return start()


def failure(recorded: "Future[None] | None") -> str:
    assert recorded is not None
    error = recorded.exception(10)
    assert isinstance(error, InferenceError)
    assert error.kind is ErrorKind.MODEL_NOT_READY
    return error.message.removeprefix("The inference could not be recorded: ")


def wait_recorded(*futures: "Future[None] | None") -> None:
    for recorded in futures:
        assert recorded is not None
        assert recorded.result(60) is None


def test_answers_wait_until_they_are_recorded_in_one_batch(recording: Recording) -> None:
    first = recording.hold()
    others = [recording.record() for _ in range(20)]
    assert first is not None
    assert not first.done()
    assert recording.metric("queue") == 20
    recording.store.write_gate.set()
    wait_recorded(first, *others)
    assert recording.store.batches == [1, 20]
    assert (recording.metric("recorded_total"), recording.metric("up")) == (21, 1)
    # Counted after the client has its answer.
    wait_until(lambda: recording.metric("commit_seconds_count") == 2)


def test_written_events_are_released_before_the_next_one(recording: Recording) -> None:
    recorded = recording.record()
    assert recorded is not None
    wait_recorded(recorded)
    reference = weakref.ref(recorded)
    del recorded
    wait_until(lambda: reference() is None)


def test_failing_store_rejects_immediately_and_recovers(recording: Recording, caplog: pytest.LogCaptureFixture) -> None:
    recording.store.fault = StoreFault.FULL
    with caplog.at_level(logging.WARNING):
        assert {failure(recording.record()) for _ in range(20)} == {"its store is full"}
        assert 0 < (recording.metric("failures_total", fault="full") or 0) < 20
        assert recording.metric("up") == 0
        assert recording.metric("dropped_total", reason="full") == 20

        def unavailable_reason() -> str:
            failure(recording.record())
            return recording.recorder.unavailable_reason

        # Readiness reports this reason, until the time of the next attempt.
        wait_until(lambda: unavailable_reason() == "The inference could not be recorded: its store is full")
        recording.store.fault = None
        while recording.metric("up") == 0:
            recorded = recording.record()
            assert recorded is not None
            recorded.exception(10)
    wait_recorded(recording.record())
    assert recording.recorder.unavailable_reason == ""
    assert caplog.messages == ["the store of recordings failed", "the store of recordings works again"]


def test_event_rejected_by_store_fails_alone(recording: Recording) -> None:
    recording.store.poison = "poison"
    recording.store.write_gate.clear()
    recorded = [recording.record(model_name="poison" if index == 5 else "m") for index in range(9)]
    recording.store.write_gate.set()
    assert failure(recorded.pop(5)) == "its store rejected it"
    wait_recorded(*recorded)
    assert len(recording.store.rows) == 8
    assert recording.metric("dropped_total", reason="rejected") == 1
    assert recording.metric("up") == 1


@pytest.mark.parametrize("operation", ["write", "delete"])
def test_hanging_store_fails_waiting_events_and_recovers(start: Callable[..., Recording], operation: str) -> None:
    recording = start(hanging=operation, write_timeout=0.2, keep_seconds=100)
    assert operation == "write" or recording.store.delete_started.wait(60)
    futures = [recording.record() for _ in range(2)]
    assert [failure(future) for future in (*futures, recording.record())] == ["its store failed"] * 3
    assert recording.metric("up") == 0
    for gate in (recording.store.write_gate, recording.store.delete_gate):
        gate.set()
    while (recorded := recording.record()) is None or recorded.exception(10) is not None:
        pass
    assert recording.metric("up") == 1


def test_best_effort_recording_keeps_events_while_store_is_unreachable(start: Callable[..., Recording]) -> None:
    recording = start(StoreFault.UNREACHABLE, acknowledge=False)
    assert [recording.record() for _ in range(5)] == [None] * 5
    assert all(recording.store.failed.acquire(timeout=60) for _ in range(2))
    assert recording.metric("up") == 0
    recording.store.fault = None
    recording.recorder.close(10)
    assert len(recording.store.rows) == 5
    assert recording.metric("recorded_total") == 5
    assert recording.store.closed


@pytest.mark.parametrize("acknowledge", [True, False])
def test_events_above_queue_limit_are_counted_and_rejected_if_clients_wait(
    start: Callable[..., Recording], caplog: pytest.LogCaptureFixture, acknowledge: bool
) -> None:
    recording = start(acknowledge=acknowledge, max_queued=3)
    recording.hold()
    with caplog.at_level(logging.ERROR):
        _, _, _, *above = [recording.record() for _ in range(8)]
    rejected = [recorded and failure(recorded) for recorded in above]
    assert rejected == ["its store does not keep up" if acknowledge else None] * 5
    assert recording.metric("dropped_total", reason="behind") == 5
    assert len(caplog.records) == 1
    recording.store.write_gate.set()
    recording.recorder.close(10)
    assert len(recording.store.rows) == 4


def test_close_writes_waiting_events(recording: Recording) -> None:
    recording.store.write_gate.clear()
    recorded = [recording.record() for _ in range(5)]
    recording.store.write_gate.set()
    recording.recorder.close(10)
    wait_recorded(*recorded)
    assert recording.store.closed
    assert failure(recording.record()) == "the server is stopping"


def test_close_waits_for_unreachable_store_only_until_timeout(
    start: Callable[..., Recording], caplog: pytest.LogCaptureFixture
) -> None:
    recording = start(StoreFault.UNREACHABLE, acknowledge=False)
    for _ in range(5):
        recording.record()
    with caplog.at_level(logging.ERROR):
        recording.recorder.close(0.1)
    assert recording.metric("dropped_total", reason="stopping") == 5
    assert "requests were not recorded before the end" in caplog.messages


def test_unwritable_image_folder_fails_recording(start: Callable[..., Recording], tmp_path: Path) -> None:
    recording = start(images=tmp_path / "images")
    for shard in (tmp_path / "images").iterdir():
        shard.rmdir()
        shard.write_bytes(b"")
    assert failure(recording.record()) == "its store failed"
    assert recording.store.rows == []


def test_error_while_deleting_does_not_stop_recording(caplog: pytest.LogCaptureFixture) -> None:
    recording = Recording(keep_seconds=100)
    recording.store.delete_error = RuntimeError("unexpected")
    with caplog.at_level(logging.ERROR):
        recording.recorder.writer.start()
        for _ in range(3):
            wait_recorded(recording.record())
        recording.recorder.close(10)
    assert "recording failed unexpectedly" in caplog.messages
    assert len(recording.store.rows) == 3


def test_store_of_later_version_fails_recording(recording: Recording) -> None:
    recording.store.write_error = SettingsError("a later version")
    recorded = [recording.record() for _ in range(3)]
    assert {failure(future) for future in recorded} == {"its store failed"}
    assert recording.metric("dropped_total", reason="rejected") == 0
    assert recording.metric("up") == 0


def test_unconvertible_event_is_rejected_alone(recording: Recording) -> None:
    class Unconvertible:
        def records(self) -> Any:
            raise RuntimeError("no words")

    event = detection_event()
    result: Any = event.result
    samples = [msgspec.structs.replace(result.samples[0], prediction=Unconvertible())]
    broken = recording.record(result=msgspec.structs.replace(result, samples=samples))
    assert failure(broken) == "it cannot be converted for the store"
    assert recording.metric("dropped_total", reason="unwritable") == 1
    wait_recorded(recording.recorder.record(event))


def test_larger_sample_contains_smaller_sample() -> None:
    ids = [uuid.uuid4().hex for _ in range(2000)]
    tenth = {event_id for event_id in ids if is_sampled(event_id, 0.1)}
    half = {event_id for event_id in ids if is_sampled(event_id, 0.5)}
    assert tenth < half
    assert 120 < len(tenth) < 280
    assert 880 < len(half) < 1120
    assert all(is_sampled(event_id, 1) for event_id in ("0" * 32, "f" * 32))


def test_events_outside_sample_are_not_recorded(start: Callable[..., Recording]) -> None:
    recording = start(fraction=0.5)
    assert recording.record(id="f" * 32) is None
    wait_recorded(recording.record(id="0" * 32))


def test_trial_that_its_user_stopped_is_not_recorded(recording: Recording) -> None:
    stopped = {"outcome": ErrorKind.CANCELLED, "error": "The client disconnected"}
    assert recording.record(trial=True, **stopped) is None
    others: list[dict[str, Any]] = [{"trial": True}, stopped]
    assert [recording.record(**other) is not None for other in others] == [True, True]


def test_drop_counter_of_each_reason_starts_at_zero() -> None:
    metrics = CollectorRegistry()
    RecordingMetrics(metrics, "a store")
    for reason in (BEHIND, STOPPING, UNWRITABLE, *StoreFault):
        assert metrics.get_sample_value("charioteer_recording_dropped_total", {"reason": reason}) == 0


def test_store_that_is_behind_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    report = RecordingMetrics(CollectorRegistry(), "a store")
    with caplog.at_level(logging.WARNING):
        for queue_length in (5, 5, 0, 5):
            report.dropped(BEHIND)
            report.recorded(1, queue_length)
    message = "the store of recordings is behind; what does not fit the queue is not recorded"
    assert caplog.messages == [message, message]
