"""Spans of inferences."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from app.core.engine.request_context import RequestContext
from app.plugins.otel.tracing import Tracing, otlp_exporter
from tasks.inference.error import ErrorKind
from tests.support.data.inference_events import event
from tests.support.servers.collector import run_otlp_collector

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


def spans(*events: RequestContext) -> dict[str, ReadableSpan]:
    """Return the exported spans of `events`, by name."""
    exporter = InMemorySpanExporter()
    tracing = Tracing(exporter)
    for inference in events:
        tracing.observe(inference)
    tracing.close()
    return {span.name: span for span in exporter.get_finished_spans()}


def milliseconds(span: ReadableSpan) -> float:
    """Return the duration of a span."""
    assert span.end_time is not None
    assert span.start_time is not None
    return (span.end_time - span.start_time) / 1e6


def test_inference_span_contains_its_steps_in_order() -> None:
    found = spans(event())
    assert {name: milliseconds(span) for name, span in found.items()} == {
        "queue": 1, "decode": 2, "model": 5, "postprocess": 1, "inference": 10,
    }  # fmt: skip
    root = found["inference"]
    assert root.context is not None
    for name in ("queue", "decode", "model", "postprocess"):
        parent = found[name].parent
        assert parent is not None
        assert parent.span_id == root.context.span_id
    assert found["queue"].end_time == found["decode"].start_time
    assert root.attributes is not None
    assert root.attributes["request.id"] == "r"
    assert root.attributes["outcome"] == "ok"


def test_span_is_child_of_client_span() -> None:
    root = spans(event(trace={"traceparent": f"00-{TRACE}-{PARENT}-01"}))["inference"]
    assert root.context is not None
    assert root.parent is not None
    assert f"{root.context.trace_id:032x}" == TRACE
    assert f"{root.parent.span_id:016x}" == PARENT


@pytest.mark.parametrize("traceparent", ["", "nonsense"])
def test_invalid_trace_context_starts_a_new_trace(traceparent: str) -> None:
    assert spans(event(trace={"traceparent": traceparent}))["inference"].parent is None


def test_span_of_rejected_request_has_error_status() -> None:
    root = spans(event(ErrorKind.INVALID_REQUEST))["inference"]
    assert root.status.status_code is StatusCode.ERROR
    assert root.status.description == "no"
    assert root.attributes is not None
    assert root.attributes["outcome"] == "invalid_request"


def test_spans_are_exported_to_a_collector() -> None:
    received: list[tuple[str, bytes]] = []
    with run_otlp_collector(received) as address:
        tracing = Tracing(otlp_exporter(f"{address}/"))
        tracing.observe(event())
        tracing.close()
    ((path, body),) = received
    assert path == "/v1/traces"
    assert b"charioteer" in body
