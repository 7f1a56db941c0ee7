"""The metric of restarted model processes."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from app.core.settings.model import ModelSource
from app.plugins.isolation.restarts import RestartMetrics


@pytest.mark.parametrize(
    ("exit_reason", "cause"),
    [
        ("signal 11, SIGSEGV", "signal 11, SIGSEGV"),
        ("exit status 0", "exit status 0"),
        ("it hung: no answer to a call within 65 s", "hung"),
        ("it was not loaded: /srv/ships: model.onnx is truncated", "not loaded"),
        ("it did not end", "other"),
    ],
)
def test_restarts_are_counted_by_cause(exit_reason: str, cause: str) -> None:
    registry = CollectorRegistry()
    lost = RestartMetrics(registry).count
    for _ in range(2):
        lost(ModelSource(name="ships", version="3", folder=Path("ships")), exit_reason)
    line = f'charioteer_model_restarts_total{{cause="{cause}",model="ships",version="3"}} 2.0'
    assert line in generate_latest(registry).decode()
