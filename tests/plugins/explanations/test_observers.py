"""Observers separate explanations from inferences, because an explanation takes as long as hundreds of them."""

from typing import Any

import msgspec
import pytest
import structlog.testing
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from app.core.engine.request_context import RequestContext
from app.core.observers.metrics import Metrics
from app.core.observers.request_log import RequestLog
from app.plugins.observability.tracing import Tracing
from tasks.inference.error import ErrorKind
from tests.support.data.inference_events import event


def explanation(outcome: ErrorKind | None = None) -> RequestContext:
    """Return an explanation of 400 samples."""
    return msgspec.structs.replace(event(outcome), explanation=True, explanation_samples=400)


@pytest.mark.parametrize(("outcome", "value"), [(None, "ok"), (ErrorKind.OVERLOADED, "overloaded")])
def test_metrics_count_explanations_separately(outcome: ErrorKind | None, value: str) -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry, str)
    metrics.observe(event())
    metrics.observe(explanation(outcome))
    metrics.observe(explanation(outcome))
    labels = {"protocol": "kserve-v2", "model": "m", "version": "1", "outcome": value}
    inferred = {**labels, "outcome": "ok"}
    assert registry.get_sample_value("charioteer_explanations_total", labels) == 2
    assert registry.get_sample_value("charioteer_explanation_seconds_count", labels) == 2
    assert registry.get_sample_value("charioteer_inferences_total", inferred) == 1
    assert registry.get_sample_value("charioteer_inference_seconds_count", inferred) == 1
    assert registry.get_sample_value("charioteer_queue_seconds_count", {"protocol": "kserve-v2"}) == 1


def test_log_lines_and_spans_of_explanations_have_own_name_and_samples() -> None:
    lines: list[Any]
    with structlog.testing.capture_logs() as lines:
        RequestLog().observe(explanation())
        RequestLog().observe(event())
    assert [(line["event"], line.get("samples")) for line in lines] == [("explanation", 400), ("inference", None)]
    exporter = InMemorySpanExporter()
    tracing = Tracing(exporter)
    tracing.observe(explanation())
    tracing.close()
    attributes = {span.name: dict(span.attributes or {}) for span in exporter.get_finished_spans()}
    assert "inference" not in attributes
    assert attributes["explanation"]["explanation.samples"] == 400
