"""One structured log line for each inference."""

from datetime import UTC, datetime
from typing import Any

import structlog

from app.core.engine.request_context import RequestContext


class RequestLog:
    """Log ids, model, outcome, timings and the client's metadata of every inference."""

    def __init__(self) -> None:
        self._log: Any = structlog.get_logger("charioteer.inference")

    def observe(self, context: RequestContext, /) -> None:
        finished = datetime.fromtimestamp((context.timestamp + context.total) / 1e9, UTC).replace(tzinfo=None)
        fields: dict[str, object] = {
            "request_id": context.request_id,
            # As other log lines have it. The line may be written a little later.
            "timestamp": f"{finished.isoformat(timespec='microseconds')}Z",
            "protocol": context.protocol,
            "model": context.model_name,
            "version": context.model_version,
            "batch_size": context.batch_size,
        }
        durations = {
            "queue_ms": context.queue,
            "decode_ms": context.decode_ns,
            "model_ms": context.model_ns,
            "postprocess_ms": context.postprocess_ns,
            "total_ms": context.total,
        }
        fields |= {name: round(nanoseconds / 1e6, 3) for name, nanoseconds in durations.items()}
        if context.client:
            fields["client"] = context.client
        if context.base_id is not None:
            fields["inference_base_id"] = context.base_id
        read = context.metadata.of()
        entries = [{entry.key: entry.value for entry in metadata.entries} for metadata in read]
        if any(entries):
            fields["metadata"] = entries
        faults = [fault for metadata in read for fault in metadata.faults]
        if faults:
            fields["metadata_faults"] = faults
        if context.count > 1:
            fields["requests"] = context.count
        name = "inference"
        if context.explanation:
            name, fields["samples"] = "explanation", context.explanation_samples
        if context.outcome is None:
            self._log.info(name, outcome="ok", **fields)
        else:
            self._log.warning(name, outcome=context.outcome.value, error=context.error, **fields)
