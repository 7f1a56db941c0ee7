"""Spans of inferences."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from app.engine.answered import Timings
from app.engine.events import InferenceEvent, RequestInfo
from app.observers.tracing import Tracing, otlp_exporter
from tasks.exchange.error import ErrorKind
from tests.support.collector import collector

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


def event(outcome: ErrorKind | None = None, trace: dict[str, str] | None = None) -> InferenceEvent:
    """An inference of 10 ms."""
    return InferenceEvent(
        caller=RequestInfo(protocol="kserve-v2", request_id="r", trace=trace or {}),
        model_name="m",
        model_version="1",
        outcome=outcome,
        error="no" if outcome else "",
        batch_size=1,
        queue=1_000_000,
        total=10_000_000,
        timings=Timings(decode=2_000_000, model=5_000_000, refine=1_000_000),
        metadata=(),
    )


def spans(*events: InferenceEvent) -> dict[str, ReadableSpan]:
    """What was written for `events`, by name."""
    exporter = InMemorySpanExporter()
    tracing = Tracing(exporter)
    for each in events:
        tracing.observe(each)
    tracing.close()
    return {span.name: span for span in exporter.get_finished_spans()}


def milliseconds(span: ReadableSpan) -> float:
    """How long it took."""
    assert span.end_time is not None
    assert span.start_time is not None
    return (span.end_time - span.start_time) / 1e6


def test_an_inference_is_a_span_with_its_steps_in_order() -> None:
    found = spans(event())
    assert {name: milliseconds(span) for name, span in found.items()} == {
        "queue": 1, "decode": 2, "model": 5, "refine": 1, "inference": 10,
    }  # fmt: skip
    whole = found["inference"]
    assert whole.context is not None
    for name in ("queue", "decode", "model", "refine"):
        parent = found[name].parent
        assert parent is not None
        assert parent.span_id == whole.context.span_id
    assert found["queue"].end_time == found["decode"].start_time
    assert whole.attributes is not None
    assert whole.attributes["request.id"] == "r"
    assert whole.attributes["outcome"] == "ok"


def test_the_span_stands_under_that_of_the_sender() -> None:
    whole = spans(event(trace={"traceparent": f"00-{TRACE}-{PARENT}-01"}))["inference"]
    assert whole.context is not None
    assert whole.parent is not None
    assert f"{whole.context.trace_id:032x}" == TRACE
    assert f"{whole.parent.span_id:016x}" == PARENT


@pytest.mark.parametrize("traceparent", ["", "nonsense", "00-0-0-00", "ff" * 40])
def test_a_context_that_cannot_be_read_begins_a_trace(traceparent: str) -> None:
    assert spans(event(trace={"traceparent": traceparent}))["inference"].parent is None


def test_a_refusal_is_an_error() -> None:
    whole = spans(event(ErrorKind.INVALID_REQUEST))["inference"]
    assert whole.status.status_code is StatusCode.ERROR
    assert whole.status.description == "no"
    assert whole.attributes is not None
    assert whole.attributes["outcome"] == "invalid_request"


def test_spans_reach_a_collector() -> None:
    received: list[tuple[str, bytes]] = []
    with collector(received) as address:
        tracing = Tracing(otlp_exporter(f"{address}/"))
        tracing.observe(event())
        tracing.close()
    ((path, body),) = received
    assert path == "/v1/traces"
    assert b"charioteer" in body
