"""What operators are told."""

import logging

import pytest
from prometheus_client import CollectorRegistry

from app.recording.report import BEHIND, Report


def test_a_store_is_up_until_it_fails() -> None:
    metrics = CollectorRegistry()
    Report(metrics, "a store")
    assert metrics.get_sample_value("charioteer_recording_up") == 1


def test_a_store_that_is_behind_is_told_once_however_often_it_commits(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    report = Report(CollectorRegistry(), "a store", lambda: now)
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            report.dropped(BEHIND)
            report.committed(0.01)
            now += 1
        assert len(caplog.records) == 1
        now += 10
        report.committed(0.01)
        report.committed(0.01)
    assert [each.message for each in caplog.records][1:] == ["the store of recordings keeps up again"]
