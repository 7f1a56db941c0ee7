"""Media types."""

from prometheus_client import CONTENT_TYPE_LATEST

PROMETHEUS = CONTENT_TYPE_LATEST.removesuffix("; charset=utf-8")
"""The media type of Prometheus' text format, without the charset, which Litestar adds to every text."""


def media_type_of(content_type: str) -> str:
    """Return `content_type` without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()
