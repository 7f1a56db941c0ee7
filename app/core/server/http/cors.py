"""Which pages of other origins may read responses (CORS), for inferences and for the routes of the framework."""

from collections.abc import Mapping, Sequence
from typing import Any

from litestar.config.cors import CORSConfig

_CLOUD_EVENT_ATTRIBUTES = ("datacontenttype", "dataschema", "id", "source", "specversion", "subject", "time", "type")
_CLOUD_EVENT_HEADERS = [f"ce-{name}" for name in _CLOUD_EVENT_ATTRIBUTES]
"""Attributes of a CloudEvent in binary mode. Extensions are missing because a preflight cannot list patterns."""

_CORS: Any = {
    "allow_methods": ["GET", "POST"],
    # The header of the page is missing because other sites must not send it.
    "allow_headers": [
        "authorization",
        "chariot-inference-base-id",
        "chariot-inference-parameters",
        *_CLOUD_EVENT_HEADERS,
        "content-type",
        "inference-header-content-length",
        "traceparent",
        "tracestate",
        "x-api-key",
        "x-request-id",
        "x-request-timeout-ms",
    ],
    "expose_headers": [
        "chariot-inference-base-id",
        *_CLOUD_EVENT_HEADERS,
        "inference-header-content-length",
        "retry-after",
        "x-request-id",
    ],
}


def cors_config(origins: Sequence[str]) -> CORSConfig | None:
    """Return the rules for the pages of `origins`; None without any."""
    return CORSConfig(allow_origins=list(origins), **_CORS) if origins else None


def cors_headers(config: CORSConfig | None, headers: Mapping[str, str]) -> Sequence[tuple[str, str]]:
    """Return the headers of a response to a request with `headers`, as the framework adds them on its routes."""
    origin = headers.get("origin")
    if config is None or not origin:
        return ()
    added = {name.lower(): value for name, value in config.simple_headers.items()}
    if config.is_origin_allowed(origin):
        added["access-control-allow-origin"] = origin
        added["vary"] = "Origin"
    added["access-control-allow-headers"] = ", ".join(sorted(set(config.allow_headers)))
    added["access-control-allow-methods"] = ", ".join(sorted(set(config.allow_methods)))
    return tuple(added.items())
