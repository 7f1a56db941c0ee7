"""Translate a query into conditions on the columns of a recording, for SQLite and PostgreSQL."""

import operator
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Numeric, Select, and_, cast, exists, func, literal, select

from app.plugins.recording.inference_query import (
    ANY_ERROR,
    ANY_REASON,
    NO_ERROR,
    NO_TRIAL,
    RANDOM_SAMPLE,
    TRIAL,
    InferenceQuery,
)
from app.plugins.recording.stores.rows import NUMBER, entry_line, json_text
from app.plugins.recording.stores.tables import INDEXED_CHARACTERS, labels, metadata, recordings
from tasks.inference.error import ErrorKind, invalid, quote_value

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_AGO = re.compile(r"([0-9]{1,9})\s*([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_MAX_CHARACTERS = 20_000
_MAX_CONDITIONS = 32
_INT64 = range(-(2**63), 2**63)
_MAX_DIGITS = 400
_BELOW_ALL = "\x01"
"""A character before all characters of JSON."""
COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_EQUAL = {
    "request_id": "request_id",
    "base_id": "base_id",
    "digest": "image_digest",
    "model": "model",
    "model_version": "version",
    "protocol": "protocol",
    "task_type": "task_type",
}
_CONDITION = re.compile(
    r"""\s*(?P<key>[^\W\d][\w-]*|"(?:[^"\\]|\\.)*")\s*(?P<comparison><=|>=|[=<>])\s*
    (?P<value>"(?:[^"\\]|\\.)*"|'[^']*'|-?[0-9][\w.+-]*)\s*(?:\Z|(?<!\w)and\b(?=.))""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
"""A condition such as ``altitude > 100``. Key and value may be in quotes (`_unquote`)."""


def matching_numbers(
    query: InferenceQuery, dialect: str, before: int | None = None, limit: int | None = None, now: float | None = None
) -> Select[int]:
    """Return a statement that finds the numbers of matching inferences, the newest first.

    Raise InferenceError when a filter is invalid, with the name of the parameter as its path.

    Args:
        query: the filters.
        dialect: ``sqlite`` or ``postgresql``.
        before: only numbers below this one.
        limit: the maximum number of inferences.
        now: seconds since 1970, for relative times; the current time by default.
    """
    conditions = [*_conditions(query, dialect, time.time() if now is None else now)]
    # The index of labels finds the newest inferences with a label; the other tables are read from the newest on.
    tables = [*([labels] if query.label is not None else ()), *([metadata] if query.where else ())]
    if conditions or not tables:
        tables.append(recordings)
    number = tables[0].c.number
    conditions += (table.c.number == number for table in tables[1:])
    conditions += _label_conditions(number, query.label, query.min_score, query.max_score)
    conditions += _metadata_conditions(query.where, dialect)
    if before is not None:
        conditions.append(number < before)
    return select(number).where(*conditions).order_by(number.desc()).limit(limit)


def contains(column: ColumnElement[str], part: str, dialect: str) -> ColumnElement[bool]:
    """Return the condition that a text contains another one."""
    return (func.instr(column, part) if dialect == "sqlite" else func.strpos(column, part)) > 0


def _conditions(query: InferenceQuery, dialect: str, now: float) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions on the columns of recordings."""
    for name, column in _EQUAL.items():
        if (value := getattr(query, name)) is not None:
            text = indexed_text(value, name.replace("_", "-"))
            yield recordings.c[column] == (text.lower() if name == "digest" else text)
    for name, compare in (("since", operator.ge), ("until", operator.lt)):
        if (moment := getattr(query, name)) is not None:
            yield compare(recordings.c.started, _microseconds(moment, name, now))
    if query.error is not None:
        yield _error_condition(query.error)
    if query.reason not in (None, ANY_REASON):
        yield _reason_condition(query.reason, dialect)
    if query.truth is not None:
        yield from _truth_conditions(query.truth, dialect)


def _error_condition(error: str) -> ColumnElement[bool]:
    allowed = [ANY_ERROR, NO_ERROR, *ErrorKind]
    if error not in allowed:
        raise invalid(f"Expected one of {', '.join(allowed)}, got {quote_value(error)}", "error")
    if error == NO_ERROR:
        return recordings.c.error.is_(None)
    return recordings.c.error.is_not(None) if error == ANY_ERROR else recordings.c.error == error


def _truth_conditions(truth: str, dialect: str) -> Iterator[ColumnElement[bool]]:
    if truth not in ("yes", "no", "wrong"):
        raise invalid(f"Expected yes, no or wrong, got {quote_value(truth)}", "truth")
    yield recordings.c.truth.is_(None) if truth == "no" else recordings.c.truth.is_not(None)
    if truth == "wrong":
        yield contains(recordings.c.truth, '{"verdict":"wrong"', dialect)


def _reason_condition(reason: str, dialect: str) -> ColumnElement[bool]:
    if reason == NO_TRIAL:
        return ~_reason_condition(TRIAL, dialect)
    value = "null" if reason == RANDOM_SAMPLE else json_text(indexed_text(reason, "reason"))
    return contains(recordings.c.selection, f'"reason":{value},', dialect)


def _microseconds(text: str, name: str, now: float) -> int:
    if match := _AGO.fullmatch(text.strip()):
        return max(0, int((now - int(match[1]) * _UNITS[match[2]]) * 1_000_000))
    try:
        moment = datetime.fromisoformat(text.strip())
        return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        expected = "a moment such as 2026-11-05T12:30:00Z, or how long ago, such as 2h or 7d"
        raise invalid(f"Expected {expected}, got {quote_value(text)}", name) from None


def _label_conditions(
    number: ColumnElement[int], label: str | None, min_score: float | None, max_score: float | None
) -> Iterator[ColumnElement[bool]]:
    bounds = [] if label is None else [labels.c.label == indexed_text(label, "label")]
    for name, compare, score in (("min-score", operator.ge, min_score), ("max-score", operator.le, max_score)):
        if score is not None:
            if not 0 <= score <= 1:
                raise invalid(f"Expected a score within 0..1, got {score:g}", name)
            bounds.append(compare(labels.c.score, score))
    if label is not None:
        yield from bounds
        return
    if max_score is not None:
        # One pass over all labels is faster than a search for each inference.
        best = func.max(labels.c.score)
        having = [best <= max_score, *([] if min_score is None else [best >= min_score])]
        yield number.in_(select(labels.c.number).group_by(labels.c.number).having(and_(*having)))
    elif bounds:
        yield exists().where(labels.c.number == number, *bounds)


def _metadata_conditions(texts: Sequence[str], dialect: str) -> Iterator[ColumnElement[bool]]:
    count = 0
    for text in texts:
        storable_text(text, "where")
        position = 0
        while position == 0 or position < len(text):
            count += 1
            if count > _MAX_CONDITIONS:
                raise invalid(f"Expected at most {_MAX_CONDITIONS} conditions, got more", "where")
            match = _CONDITION.match(text, position)
            if match is None:
                expected = 'conditions such as camera = "north" and altitude > 100, with = < <= > >='
                raise invalid(f"Expected {expected}, got {quote_value(text[position:].strip())}", "where")
            position = match.end()
            key, value = storable_text(str(_unquote(match["key"])), "where"), _unquote(match["value"])
            if isinstance(value, str):
                storable_text(value, "where")
            yield _metadata_condition(key, match["comparison"], value, dialect)


def _metadata_condition(key: str, comparison: str, value: str | float, dialect: str) -> ColumnElement[bool]:
    """Compare text with text, and numbers with integers and floats alike.

    Entries are searched as text: to parse the JSON of a million rows takes ten times as long.
    """
    compare = COMPARISONS[comparison]
    if isinstance(value, str):
        if comparison == "=":
            return contains(metadata.c.entries, entry_line(key, "str", value), dialect)
        text = json_text(value)[1:-1] + _BELOW_ALL
        # The quote that ends a shorter text must be less than any character of the other.
        found = _after(entry_line(key, "str", "")[:-2], len(text), dialect)
        return compare(func.replace(found, '"', _BELOW_ALL), text)
    start = entry_line(key, NUMBER, 0)[:-2]
    if dialect == "sqlite":
        number = value if isinstance(value, float) or value in _INT64 else float(value)
        return compare(cast(_after(start, _MAX_DIGITS, dialect), Numeric), literal(number))
    # To count the characters of a prefix takes longer than to copy the rest.
    digits = func.split_part(_after(start, None, dialect), "]", 1)
    return compare(cast(digits, Numeric), literal(Decimal(repr(value)), Numeric))


def _after(start: str, length: int | None, dialect: str) -> ColumnElement[str]:
    """Return the characters that follow `start` in the entries, or the first `length`; NULL without `start`."""
    entries = metadata.c.entries
    if dialect == "sqlite":
        return func.substr(entries, func.nullif(func.instr(entries, start), 0) + len(start), length)
    rest = func.nullif(func.split_part(entries, start, 2), "")
    return rest if length is None else func.left(rest, length)


def _unquote(text: str) -> str | float:
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
    """Return the indexed part of `text`. Raise INVALID_REQUEST as `storable_text`."""
    return storable_text(text, name)[:INDEXED_CHARACTERS]


def storable_text(text: str, name: str) -> str:
    r"""Return `text`. Reject ``\0`` and halves of surrogate pairs, which no store holds."""
    if len(text) > _MAX_CHARACTERS:
        raise invalid(f"Expected at most {_MAX_CHARACTERS} characters, got {len(text)}", name)
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        got = quote_value(text)
        raise invalid(f"Expected text without zero characters and halves of surrogate pairs, got {got}", name)
    return text
