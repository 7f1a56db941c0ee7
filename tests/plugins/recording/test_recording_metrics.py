"""Metrics and log lines of recording."""

import logging

import pytest
from prometheus_client import CollectorRegistry

from app.plugins.recording.recording_metrics import BEHIND, STOPPING, UNWRITABLE, RecordingMetrics
from app.plugins.recording.stores.store import StoreFault


def test_drop_counter_of_each_reason_starts_at_zero() -> None:
    metrics = CollectorRegistry()
    RecordingMetrics(metrics, "a store")
    for reason in (BEHIND, STOPPING, UNWRITABLE, *StoreFault):
        assert metrics.get_sample_value("charioteer_recording_dropped_total", {"reason": reason}) == 0


def test_store_that_is_behind_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    report = RecordingMetrics(CollectorRegistry(), "a store", lambda: now)
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            report.dropped(BEHIND)
            report.committed(0.01)
            now += 1
        assert len(caplog.records) == 1
        now += 10
        report.committed(0.01)
        report.committed(0.01)
    assert [record.message for record in caplog.records][1:] == ["the store of recordings keeps up again"]
