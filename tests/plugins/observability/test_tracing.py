"""Spans of inferences, and the option that exports them."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from app.core.assembly.discovery import discover
from app.core.assembly.service import Service
from app.core.engine.request_context import RequestContext
from app.core.settings.server import DEMO_MODELS, SettingsError
from app.plugins.observability.tracing import Tracing, otlp_exporter
from tasks.inference.error import ErrorKind
from tests.support.data.inference_events import event
from tests.support.servers.settings import settings_of_main_port
from tests.support.servers.stand_in import run_otlp_collector

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
    assert {span.parent and span.parent.span_id for name, span in found.items() if name != "inference"} == {
        root.context and root.context.span_id
    }
    assert found["queue"].end_time == found["decode"].start_time
    attributes = root.attributes or {}
    assert (attributes["request.id"], attributes["outcome"]) == ("r", "ok")


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
    assert (root.status.status_code, root.status.description) == (StatusCode.ERROR, "no")
    assert (root.attributes or {})["outcome"] == "invalid_request"


def test_spans_are_exported_to_a_collector() -> None:
    received: list[tuple[str, bytes]] = []
    with run_otlp_collector(received) as address:
        tracing = Tracing(otlp_exporter(f"{address}/"))
        tracing.observe(event())
        tracing.close()
    ((path, body),) = received
    assert path == "/v1/traces"
    assert b"charioteer" in body


def service(endpoint: str) -> Service:
    return Service(settings_of_main_port(otlp_endpoint=endpoint), lambda: discover(DEMO_MODELS / "detector"))


@pytest.mark.parametrize("endpoint", ["collector:4318", "http://[x"])
def test_endpoint_of_traces_that_is_no_url_is_rejected(endpoint: str) -> None:
    with pytest.raises(SettingsError, match="--otlp-endpoint: Expected a URL that begins with http:// or https://"):
        service(endpoint)


def test_empty_endpoint_of_traces_is_accepted() -> None:
    assert service("").engine
