"""CloudEvents 1.0 for requests and responses, in the binary and structured modes of the HTTP binding.

Responses have KServe's type and source. Extension attributes are accepted and ignored.
"""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from urllib.parse import quote

import msgspec

from app.core.protocols.inference_call import HttpResponse
from app.core.protocols.kserve_v1.wire import WireRequest
from app.core.wire.bytes_elements import StringElement
from app.core.wire.json_body import read_json
from tasks.inference.error import InferenceError, invalid, quote_value

EVENT_MEDIA_TYPE = "application/cloudevents+json"
"""The media type of structured mode."""

_HEADER_PREFIX = "ce-"
"""Prefix of the headers with an event's attributes in binary mode."""

EVENT_HEADERS = tuple(
    _HEADER_PREFIX + name
    for name in ("datacontenttype", "dataschema", "id", "source", "specversion", "subject", "time", "type")
)
"""Headers of binary mode. Extensions are missing because a preflight cannot list patterns."""

_REQUIRED = ("id", "source", "specversion", "type")
_VERSION = "1.0"
_TYPE = "io.kserve.inference.response"
_SOURCE = "io.kserve.inference."


class WireEvent(WireRequest, frozen=True, kw_only=True):
    """A CloudEvent in structured mode (JSON event format 1.0.2), or a plain request; the members decide."""

    specversion: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    source: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    type: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    time: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    datacontenttype: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data_base64: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class EventMode(StrEnum):
    """How a request carries an event, if it does."""

    NONE = ""
    BINARY = "binary"
    STRUCTURED = "structured"


def detect_event_mode(media_type: str, headers: Mapping[str, str]) -> EventMode:
    """Return how the media type or the headers, with names in lower case, make the request an event.

    Raise INVALID_REQUEST when only some of the required attributes are present.
    """
    if media_type == EVENT_MEDIA_TYPE:
        return EventMode.STRUCTURED
    names = [_HEADER_PREFIX + name for name in _REQUIRED]
    missing = [name for name in names if not headers.get(name)]
    if len(missing) == len(names):
        return EventMode.NONE
    if missing:
        raise invalid(f"Expected all of {', '.join(names)} for a CloudEvent, got none or nothing", missing[0])
    # Older versions of the binding put values in double quotes.
    _check_version(headers["ce-specversion"].strip('"'), "ce-specversion")
    return EventMode.BINARY


def looks_like_event(body: WireEvent) -> bool:
    """Return whether a JSON body is an event although its media type does not say so, by KServe's rule."""
    required = (body.specversion, body.id, body.source, body.type, body.time)
    has_data = body.data is not msgspec.UNSET or body.data_base64 is not msgspec.UNSET
    return has_data and all(value is not msgspec.UNSET for value in required)


def read_event(event: WireEvent) -> tuple[bytes | msgspec.Raw, str, str]:
    """Return the data of an event in structured mode, their media type, and their path in the body.

    The data may be JSON or not. The media type is empty if the event has none. Raise INVALID_REQUEST naming the missing
    or invalid attribute.
    """
    attributes = {name: _attribute(getattr(event, name), name) for name in _REQUIRED}
    missing = next((name for name, value in attributes.items() if not value), None)
    if missing:
        raise invalid("Expected the attribute of a CloudEvent, got none or nothing", missing)
    _check_version(attributes["specversion"], "specversion")
    media_type = _attribute(event.datacontenttype, "datacontenttype")
    if isinstance(event.data, msgspec.UnsetType) == isinstance(event.data_base64, msgspec.UnsetType):
        raise invalid("Expected either data or data_base64 in a CloudEvent")
    if not isinstance(event.data, msgspec.UnsetType):
        return event.data, media_type, "data"
    try:
        content = StringElement(_attribute(event.data_base64, "data_base64")).binary()
    except InferenceError as error:
        raise error if error.path else error.with_prefix("data_base64") from None
    return content, media_type, "data_base64"


def encode_event(mode: EventMode, model_name: str, content: bytes) -> HttpResponse:
    """Return the response with the JSON `content` to a request in `mode`."""
    if mode is EventMode.NONE:
        return HttpResponse(content=content)
    attributes = {
        "specversion": _VERSION,
        "id": str(uuid.uuid4()),
        # A source is a URI reference, and a header value is ASCII, so escape the name.
        "source": _SOURCE + quote(model_name, safe=""),
        "type": _TYPE,
        "time": datetime.now(UTC).isoformat(),
    }
    if mode is EventMode.BINARY:
        headers = [(_HEADER_PREFIX + name, value) for name, value in attributes.items()]
        return HttpResponse(content=content, headers=headers)
    event = msgspec.json.encode({**attributes, "data": msgspec.Raw(content)})
    return HttpResponse(content=event, media_type=EVENT_MEDIA_TYPE)


def _check_version(version: str, path: str) -> None:
    if version != _VERSION:
        raise invalid(f'Expected version "{_VERSION}" of CloudEvents, got {quote_value(version)}', path)


def _attribute(raw: msgspec.Raw | msgspec.UnsetType, name: str) -> str:
    """Return the text of an attribute; empty if it is missing or null."""
    return "" if isinstance(raw, msgspec.UnsetType) else read_json(raw, _Text, name) or ""


_Text: Any = str | None
