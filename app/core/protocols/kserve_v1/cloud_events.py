"""CloudEvents 1.0 for requests and responses, in the binary mode of the HTTP binding, as KServe's logger sends them.

Responses have KServe's type and source. Extension attributes are accepted and ignored.
"""

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import quote

from tasks.inference.error import invalid, quote_value

_PREFIX = "ce-"
"""Prefix of the headers with an event's attributes."""

EVENT_HEADERS = tuple(
    _PREFIX + name
    for name in ("datacontenttype", "dataschema", "id", "source", "specversion", "subject", "time", "type")
)
"""Headers of events. Extensions are missing because a preflight cannot list patterns."""

_REQUIRED = tuple(_PREFIX + name for name in ("id", "source", "specversion", "type"))
_VERSION = "1.0"
_TYPE = "io.kserve.inference.response"
_SOURCE = "io.kserve.inference."


def is_event(headers: Mapping[str, str]) -> bool:
    """Return whether the headers of a request, with names in lower case, make it an event.

    Raise INVALID_REQUEST if only some of the required attributes are present, or for another version.
    """
    missing = [name for name in _REQUIRED if not headers.get(name)]
    if len(missing) == len(_REQUIRED):
        return False
    if missing:
        raise invalid(f"Expected all of {', '.join(_REQUIRED)} for a CloudEvent, got none or nothing", missing[0])
    # Older versions of the binding put values in double quotes.
    version = headers["ce-specversion"].strip('"')
    if version != _VERSION:
        raise invalid(f'Expected version "{_VERSION}" of CloudEvents, got {quote_value(version)}', "ce-specversion")
    return True


def event_headers(model_name: str) -> Sequence[tuple[str, str]]:
    """Return the headers that make a response of a model an event."""
    return [
        ("ce-specversion", _VERSION),
        ("ce-id", str(uuid.uuid4())),
        # A source is a URI reference, and a header value is ASCII, so escape the name.
        ("ce-source", _SOURCE + quote(model_name, safe="")),
        ("ce-type", _TYPE),
        ("ce-time", datetime.now(UTC).isoformat()),
    ]
