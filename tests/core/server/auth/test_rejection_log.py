"""Counting and logging refusals."""

import structlog
from prometheus_client import CollectorRegistry

from app.core.server.auth.audit import RejectionLog
from app.core.server.auth.credentials import unauthenticated

WHAT = "GET /metrics"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_all_refusals_are_counted_but_log_lines_are_sampled() -> None:
    registry, clock = CollectorRegistry(), Clock()
    refusals = RejectionLog(registry, clock)
    with structlog.testing.capture_logs() as logs:
        for _ in range(1000):
            error = unauthenticated("unknown", "The key is not known here")
            refusals.record(error, [], operation=WHAT, address="10.0.0.1")
    assert registry.get_sample_value("charioteer_access_refused_total", {"reason": "unknown"}) == 1000
    assert len(logs) == 10
    assert logs[0] == {
        "event": "access refused",
        "reason": "unknown",
        "error": "The key is not known here",
        "what": WHAT,
        "address": "10.0.0.1",
        "log_level": "warning",
    }
    clock.now = 1.0
    with structlog.testing.capture_logs() as logs:
        refusals.record(unauthenticated("missing", "None"), [], operation=WHAT + "a" * 1000, address="10.0.0.1")
    assert [line["not_logged"] for line in logs] == [990]
    assert len(logs[0]["what"]) < 250
