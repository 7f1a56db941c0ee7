"""One structured log line for each inference."""

from typing import Any

import structlog

from app.engine.events import InferenceEvent

__all__ = ("RequestLog",)


class RequestLog:
    """Log ids, model, outcome, timings and the client's metadata of every inference."""

    def __init__(self) -> None:
        self._log: Any = structlog.get_logger("charioteer.inference")

    def observe(self, event: InferenceEvent, /) -> None:
        fields: dict[str, object] = {
            "request_id": event.info.request_id,
            "protocol": event.info.protocol,
            "model": event.model_name,
            "version": event.model_version,
            "batch_size": event.batch_size,
            "queue_ms": _milliseconds(event.queue),
            "decode_ms": _milliseconds(event.timings.decode),
            "model_ms": _milliseconds(event.timings.model),
            "refine_ms": _milliseconds(event.timings.postprocess),
            "total_ms": _milliseconds(event.total),
        }
        if event.info.client:
            fields["client"] = event.info.client
        if event.info.base_id is not None:
            fields["inference_base_id"] = event.info.base_id
        entries = [{entry.key: entry.value for entry in metadata.entries} for metadata in event.metadata]
        if any(entries):
            fields["metadata"] = entries
        faults = [fault for metadata in event.metadata for fault in metadata.faults]
        if faults:
            fields["metadata_faults"] = faults
        if event.count > 1:
            fields["requests"] = event.count
        name = "inference"
        if event.explanation:
            name, fields["samples"] = "explanation", event.explanation_samples
        if event.outcome is None:
            self._log.info(name, outcome="ok", **fields)
        else:
            self._log.warning(name, outcome=event.outcome.value, error=event.error, **fields)


def _milliseconds(nanoseconds: int) -> float:
    return round(nanoseconds / 1e6, 3)
