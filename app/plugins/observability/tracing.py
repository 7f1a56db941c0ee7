"""OpenTelemetry spans of inferences (the extra ``otel``)."""

import logging
import threading
import time

from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app import __version__
from app.core.engine.request_context import RequestContext

_PROPAGATOR = TraceContextTextMapPropagator()
_SHUTDOWN_SECONDS = 2.0

_logger = logging.getLogger(__name__)


def otlp_exporter(endpoint: str) -> SpanExporter:
    """Return an exporter to an OTLP collector over HTTP; `endpoint` is its base URL: ``http://127.0.0.1:4318``."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")


class Tracing:
    """Write one span for each inference, as a child of the client's span, and one for each step within it.

    Observers are called after an inference has ended, so that spans get their times from the context. The exporter
    receives them in batches, in its own thread.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        resource = Resource.create({SERVICE_NAME: "charioteer", "service.version": __version__})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("charioteer", __version__)

    def observe(self, context: RequestContext, /) -> None:
        ended = time.time_ns()
        started = ended - context.total
        attributes = {
            "request.id": context.request_id,
            "protocol": context.protocol,
            "model.name": context.model_name,
            "model.version": context.model_version,
            "batch.size": context.batch_size,
            "outcome": context.outcome.value if context.outcome else "ok",
        }
        if context.explanation:
            attributes["explanation.samples"] = context.explanation_samples
        span = self._tracer.start_span(
            "explanation" if context.explanation else "inference",
            _PROPAGATOR.extract(context.trace),
            SpanKind.SERVER,
            attributes,
            start_time=started,
        )
        if context.outcome is not None:
            span.set_status(Status(StatusCode.ERROR, context.error))
        parent, step_started = set_span_in_context(span), started
        steps = (
            ("queue", context.queue),
            ("decode", context.decode_ns),
            ("model", context.model_ns),
            ("postprocess", context.postprocess_ns),
        )
        for name, nanoseconds in steps:
            if nanoseconds:
                step = self._tracer.start_span(name, parent, start_time=step_started)
                step_started += nanoseconds
                step.end(step_started)
        span.end(ended)

    def close(self) -> None:
        """Send the remaining spans, with a timeout of two seconds."""
        # The provider waits minutes for a collector that does not answer, so that it needs its own thread.
        thread = threading.Thread(target=self._provider.shutdown, name="tracing", daemon=True)
        thread.start()
        thread.join(_SHUTDOWN_SECONDS)
        if thread.is_alive():
            _logger.warning("traces were not sent before the end", extra={"seconds": _SHUTDOWN_SECONDS})
