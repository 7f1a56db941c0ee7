"""Queries for recorded inferences, and their text form."""

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from app.recording.geography import Shape, parse_box, parse_circle, parse_polygon
from app.recording.query.conditions import Condition, check_text, parse_conditions
from tasks.inference.error import ErrorKind, invalid, quote_value

__all__ = ("ANY_ERROR", "NO_ERROR", "InferenceQuery", "QueryText", "parse_cursor", "parse_query")

ANY_ERROR = "any"
NO_ERROR = "none"

_MICROSECONDS = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_AGO = re.compile(r"([0-9]{1,9})\s*(s|m|h|d|w)")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_CURSOR = re.compile(r"[0-9]{1,18}")
_MAX_CHARACTERS = 1000


class _Filters(msgspec.Struct, frozen=True, kw_only=True):
    """The filters that have the same form in a query and in its text.

    Attributes:
        model: the name of the model.
        protocol: the name of the wire protocol.
        task_type: the task of the model.
        request_id: the id of the request.
        base_id: Chariot's base id.
        label: at least one prediction has this label.
        min_score: at least one prediction (of the label, if given) has this score or a higher one.
        max_score: the best prediction (of the label, if given) has at most this score; no prediction does not match.
        error: an `ErrorKind` value, `ANY_ERROR` or `NO_ERROR`.
        digest: the digest of the image.
    """

    model: str | None = None
    protocol: str | None = None
    task_type: str | None = None
    request_id: str | None = None
    base_id: str | None = None
    label: str | None = None
    min_score: float | None = None
    max_score: float | None = None
    error: str | None = None
    digest: str | None = None


class InferenceQuery(_Filters, frozen=True, kw_only=True):
    """A parsed query. An inference must meet every filter.

    Attributes:
        since: earliest start time, in microseconds since 1970 (UTC), inclusive.
        until: end of the time range, exclusive.
        conditions: conditions on metadata.
        shapes: each must contain the position in the metadata.
    """

    since: int | None = None
    until: int | None = None
    conditions: Sequence[Condition] = ()
    shapes: Sequence[Shape] = ()


class QueryText(_Filters, frozen=True, kw_only=True):
    """A query as text, from command-line options or URL parameters.

    Attributes:
        since: a time (`2026-11-05`, `2026-11-05T12:30:00Z`; UTC by default), or how long ago (`2h`, `7d`).
        until: in the same form.
        where: conditions on metadata, as `app.recording.query.conditions` reads them.
        near: `LATITUDE,LONGITUDE,KILOMETRES`.
        box: `SOUTH,WEST,NORTH,EAST`.
        polygon: `LAT,LON LAT,LON ...`, or GeoJSON.
    """

    since: str | None = None
    until: str | None = None
    where: Sequence[str] = ()
    near: str | None = None
    box: str | None = None
    polygon: str | None = None


def parse_query(text: QueryText, now: float | None = None) -> InferenceQuery:
    """Parse a query.

    Args:
        text: the text form of the query.
        now: reference for relative times, in seconds since 1970; the current time when None.

    Raises:
        InferenceError: when a filter is invalid, with the name of the parameter as its path.
    """
    current_time = time.time() if now is None else now
    return InferenceQuery(
        since=_timestamp(text.since, "since", current_time),
        until=_timestamp(text.until, "until", current_time),
        model=_text(text.model, "model"),
        protocol=_text(text.protocol, "protocol"),
        task_type=_text(text.task_type, "task-type"),
        request_id=_text(text.request_id, "request-id"),
        base_id=_text(text.base_id, "base-id"),
        label=_text(text.label, "label"),
        min_score=_score(text.min_score, "min-score"),
        max_score=_score(text.max_score, "max-score"),
        error=_error(text.error),
        digest=_text(text.digest, "digest"),
        conditions=parse_conditions(text.where),
        shapes=_shapes(text),
    )


def parse_cursor(text: str, name: str = "after") -> int:
    """Parse a page cursor: the number of the last inference of the previous page.

    Raises:
        InferenceError: for anything else.
    """
    if not _CURSOR.fullmatch(text):
        raise invalid(f"Expected the value of next from the previous page, got {quote_value(text)}", name)
    return int(text)


def _text(text: str | None, name: str) -> str | None:
    if text is not None and len(text) > _MAX_CHARACTERS:
        raise invalid(f"Expected at most {_MAX_CHARACTERS} characters, got {len(text)}", name)
    return None if text is None else check_text(text, name)


def _timestamp(text: str | None, name: str, current_time: float) -> int | None:
    if text is None:
        return None
    if match := _AGO.fullmatch(text.strip()):
        return int((current_time - int(match[1]) * _UNITS[match[2]]) * _MICROSECONDS)
    try:
        moment = datetime.fromisoformat(text.strip())
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise invalid(
            "Expected a moment such as 2026-11-05T12:30:00Z, or how long ago, such as 2h or 7d, "
            f"got {quote_value(text)}",
            name,
        ) from None


def _score(value: float | None, name: str) -> float | None:
    if value is not None and not 0 <= value <= 1:
        raise invalid(f"Expected a score within 0..1, got {value:g}", name)
    return value


def _error(text: str | None) -> str | None:
    allowed = [ANY_ERROR, NO_ERROR, *ErrorKind]
    if text is not None and text not in allowed:
        raise invalid(f"Expected one of {', '.join(allowed)}, got {quote_value(text)}", "error")
    return text


def _shapes(text: QueryText) -> list[Shape]:
    shapes: list[Shape] = []
    if text.near is not None:
        shapes.append(parse_circle(text.near))
    if text.box is not None:
        shapes.append(parse_box(text.box))
    if text.polygon is not None:
        shapes.append(parse_polygon(text.polygon))
    return shapes
