"""Translate a query into conditions on indexed columns, for SQLite and PostgreSQL."""

import math
import operator
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Table, and_, false, or_

from app.plugins.recording.inference_query import (
    ANY_ERROR,
    ANY_REASON,
    NO_ERROR,
    NO_TRIAL,
    RANDOM_SAMPLE,
    TRIAL,
    InferenceQuery,
)
from app.plugins.recording.stores.tables import INDEXED_CHARACTERS, inferences, labels, metadata, truths
from tasks.inference.error import ErrorKind, invalid, quote_value

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_AGO = re.compile(r"([0-9]{1,9})\s*([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_MAX_CHARACTERS = 20_000
_MAX_CONDITIONS = 32
_INT64 = 2**63
COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_EQUAL = {"request_id": "request_id", "base_id": "base_id", "digest": "image_digest", "model": "model"}
_EQUAL_WITHOUT_INDEX = {"model_version": "version", "protocol": "protocol", "task_type": "task_type"}
CONDITION = r"""\s*(?P<key>[^\W\d][\w-]*|"(?:[^"\\]|\\.)*")\s*(?P<comparison><=|>=|[=<>])\s*
    (?P<value>"(?:[^"\\]|\\.)*"|'[^']*'|-?[0-9][\w.+-]*)\s*"""
"""Verbose pattern of a condition such as ``altitude > 100``. Key and value may be in quotes (`unquote`)."""

_CONDITION = re.compile(rf"{CONDITION}(?:\Z|(?<!\w)and\b(?=.))", re.VERBOSE | re.DOTALL | re.IGNORECASE)


class QueryFilter(msgspec.Struct, frozen=True, kw_only=True):
    """One filter: the inference must have a row that it selects, or none if it is `negated`."""

    table: Table = inferences  # a table with a column `number`, the number of the inference
    alternatives: Sequence[ColumnElement[bool]]  # conditions on columns of the table; a row must meet one of them
    indexed: bool = True  # whether indexes find these rows
    ordered: bool = False  # whether these indexes return the rows of one alternative in the order of their numbers
    negated: bool = False  # whether the inference must have no such row
    is_time_range: bool = False  # whether it filters by arrival time, which correlates closely with the numbers


def query_filters(query: InferenceQuery, now: float | None = None) -> Sequence[QueryFilter]:
    """Return the filters of a query, with times relative to `now`, in seconds since 1970, or to the current time.

    An inference must meet every filter. Raise InferenceError when a filter is invalid, with the name of the parameter
    as its path.
    """
    filters = list(_metadata_filters(query.where))
    if query.box is not None:
        filters.append(_box_filter(query.box))
    filters += _label_filters(query.label, query.min_score, query.max_score)
    for name, column in (_EQUAL | _EQUAL_WITHOUT_INDEX).items():
        if (value := getattr(query, name)) is not None:
            text = indexed_text(value, name.replace("_", "-"))
            equal = inferences.c[column] == (text.lower() if name == "digest" else text)
            filters.append(QueryFilter(alternatives=[equal], indexed=name in _EQUAL, ordered=True))
    if query.error is not None:
        filters.append(_error_filter(query.error))
    if query.truth is not None:
        filters.append(_truth_filter(query.truth))
    if query.reason not in (None, ANY_REASON):
        filters.append(_reason_filter(query.reason))
    if query.since is not None or query.until is not None:
        filters.append(_time_filter(query, time.time() if now is None else now))
    return filters


def _error_filter(error: str) -> QueryFilter:
    allowed = [ANY_ERROR, NO_ERROR, *ErrorKind]
    if error not in allowed:
        raise invalid(f"Expected one of {', '.join(allowed)}, got {quote_value(error)}", "error")
    if error == NO_ERROR:
        return QueryFilter(alternatives=[inferences.c.error.is_(None)], indexed=False)
    if error == ANY_ERROR:
        return QueryFilter(alternatives=[inferences.c.error.is_not(None)])
    return QueryFilter(alternatives=[inferences.c.error == error], ordered=True)


def _truth_filter(truth: str) -> QueryFilter:
    if truth not in ("yes", "no", "wrong"):
        raise invalid(f"Expected yes, no or wrong, got {quote_value(truth)}", "truth")
    wrong = (truths.c.verdict == "wrong",) if truth == "wrong" else ()
    present = and_(truths.c.current, *wrong)
    return QueryFilter(table=truths, alternatives=[present], indexed=truth != "no", ordered=True, negated=truth == "no")


def _reason_filter(reason: str) -> QueryFilter:
    if reason == RANDOM_SAMPLE:
        return QueryFilter(alternatives=[inferences.c.reason.is_(None)], indexed=False)
    if reason == NO_TRIAL:
        return QueryFilter(alternatives=[inferences.c.reason.is_distinct_from(TRIAL)], indexed=False)
    return QueryFilter(alternatives=[inferences.c.reason == indexed_text(reason, "reason")], ordered=True)


def _time_filter(query: InferenceQuery, now: float) -> QueryFilter:
    bounds: list[ColumnElement[bool]] = []
    if query.since is not None:
        bounds.append(inferences.c.started >= _microseconds(query.since, "since", now))
    if query.until is not None:
        bounds.append(inferences.c.started < _microseconds(query.until, "until", now))
    return QueryFilter(alternatives=[and_(*bounds)], indexed=False, is_time_range=True)


def _microseconds(text: str, name: str, now: float) -> int:
    if match := _AGO.fullmatch(text.strip()):
        return max(0, int((now - int(match[1]) * _UNITS[match[2]]) * 1_000_000))
    try:
        moment = datetime.fromisoformat(text.strip())
        return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        expected = "a moment such as 2026-11-05T12:30:00Z, or how long ago, such as 2h or 7d"
        raise invalid(f"Expected {expected}, got {quote_value(text)}", name) from None


def _label_filters(label: str | None, min_score: float | None, max_score: float | None) -> Iterator[QueryFilter]:
    bounds = [] if label is None else [labels.c.label == indexed_text(label, "label")]
    for name, compare, score in (("min-score", operator.ge, min_score), ("max-score", operator.le, max_score)):
        if score is not None:
            if not 0 <= score <= 1:
                raise invalid(f"Expected a score within 0..1, got {score:g}", name)
            bounds.append(compare(labels.c.score, score))
    if bounds:
        yield QueryFilter(table=labels, alternatives=[and_(*bounds)], indexed=label is not None, ordered=True)
    if label is None and max_score is not None:
        # Without a label, the best score is within the limit only if no label exceeds it.
        yield QueryFilter(table=labels, alternatives=[labels.c.score > max_score], indexed=False, negated=True)


def _box_filter(text: str) -> QueryFilter:
    try:
        south, west, north, east = (float(part) for part in text.split(","))
    except ValueError:
        south = west = north = east = math.nan
    if not (-90 <= south <= north <= 90 and -180 <= west <= 180 and -180 <= east <= 180):
        expected = "south,west,north,east in degrees, south at most north"
        raise invalid(f"Expected {expected}, got {quote_value(text)}", "box")
    latitude, longitude = inferences.c.latitude, inferences.c.longitude
    inside = longitude.between(west, east) if west <= east else or_(longitude >= west, longitude <= east)
    return QueryFilter(alternatives=[and_(latitude.between(south, north), inside)])


def _metadata_filters(texts: Sequence[str]) -> Iterator[QueryFilter]:
    count = 0
    for text in texts:
        indexed_text(text, "where")
        position = 0
        while position == 0 or position < len(text):
            count += 1
            if count > _MAX_CONDITIONS:
                raise invalid(f"Expected at most {_MAX_CONDITIONS} conditions, got more", "where")
            match = _CONDITION.match(text, position)
            if match is None:
                expected = 'conditions such as camera = "north" and altitude > 100, with = < <= > >='
                got = quote_value(text[position:].strip())
                raise invalid(f"Expected {expected}, got {got}; use charioteer inferences --sql for others", "where")
            position = match.end()
            yield _metadata_filter(unquote(match["key"]), match["comparison"], unquote(match["value"]))


def _metadata_filter(key: object, comparison: str, value: str | float) -> QueryFilter:
    """Compare text with text, and numbers with integers and floats alike."""
    compare = COMPARISONS[comparison]
    if isinstance(value, str):
        parts = [compare(metadata.c.tv, indexed_text(value, "where"))]
    else:
        parts = [_integer_comparison(comparison, value), compare(metadata.c.fv, float(value))]
    has_key = metadata.c.key == indexed_text(str(key), "where")
    return QueryFilter(table=metadata, alternatives=[and_(has_key, part) for part in parts], ordered=comparison == "=")


def _integer_comparison(comparison: str, value: float) -> ColumnElement[bool]:
    """Compare 64-bit integers with a number that may be fractional or larger than 64 bits."""
    if comparison == "=":
        bound = int(value)
        possible = bound == value and -_INT64 <= bound < _INT64
    elif comparison in ("<", "<="):
        bound = min(math.ceil(value) - 1 if comparison == "<" else math.floor(value), _INT64 - 1)
        comparison, possible = "<=", bound >= -_INT64
    else:
        bound = max(math.floor(value) + 1 if comparison == ">" else math.ceil(value), -_INT64)
        comparison, possible = ">=", bound < _INT64
    return COMPARISONS[comparison](metadata.c.iv, bound) if possible else false()


def unquote(text: str) -> str | float:
    """Return a number, or text without its quotes; numbers and text in double quotes are JSON.

    Raise INVALID_REQUEST, with the path ``where``.
    """
    if text[0] not in '"-0123456789':
        return text.strip("'")
    try:
        value = msgspec.json.decode(text, type=str | int | float)
        if isinstance(value, int):
            float(value)  # reject integers that no float can be compared with
        return value
    except (msgspec.DecodeError, OverflowError) as error:
        raise invalid(f"Expected a number, or text in quotes as in JSON, got {text}: {error}", "where") from None


def indexed_text(text: str, name: str) -> str:
    r"""Return the indexed part of `text`. Reject ``\0`` and halves of surrogate pairs, which no store holds."""
    if len(text) > _MAX_CHARACTERS:
        raise invalid(f"Expected at most {_MAX_CHARACTERS} characters, got {len(text)}", name)
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        got = quote_value(text)
        raise invalid(f"Expected text without zero characters and halves of surrogate pairs, got {got}", name)
    return text[:INDEXED_CHARACTERS]
