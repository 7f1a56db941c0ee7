"""Parsing of queries."""

import pytest

from app.recording.query.query import InferenceQuery, QueryText, parse_cursor, parse_query
from tasks.inference.error import InferenceError

NOW = 1_793_880_000.5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01.000001Z", 1_000_001),
        ("1970-01-01T02:00:00+01:30", 1_800_000_000),
        ("2026-11-05T12:30:00.123457", 1_793_881_800_123_457),
        ("0s", 1_793_880_000_500_000),
        ("90m", 1_793_874_600_500_000),
        (" 2 h ", 1_793_872_800_500_000),
        ("1w", 1_793_275_200_500_000),
    ],
)
def test_times_are_parsed_to_microseconds(text: str, expected: int) -> None:
    assert parse_query(QueryText(since=text, until=text), NOW) == InferenceQuery(
        since=expected, until=expected, conditions=[], shapes=[]
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (QueryText(since="yesterday"), "since: Expected a moment such as"),
        (QueryText(until="2026-13-01"), "until: Expected a moment such as"),
        (QueryText(since="9999999999d"), "since: Expected a moment"),
        (QueryText(error="bad"), "error: Expected one of any, none, invalid_request"),
        (QueryText(min_score=1.5), "min-score: Expected a score within 0..1, got 1.5"),
        (QueryText(max_score=float("nan")), "max-score: Expected a score within 0..1, got nan"),
        (QueryText(model="m" * 1001), "model: Expected at most 1000 characters, got 1001"),
        (QueryText(label="a\0b"), "label: Expected text without zero characters"),
        (QueryText(request_id="\udc80"), "request-id: Expected text without zero characters"),
        (QueryText(where=["x"]), "where: Expected one of"),
        (QueryText(near="x"), "near: Expected latitude"),
        (QueryText(box="x"), "box: Expected south"),
        (QueryText(polygon="x"), "polygon: Expected latitude"),
    ],
)
def test_error_names_the_invalid_parameter(text: QueryText, message: str) -> None:
    with pytest.raises(InferenceError) as raised:
        parse_query(text, NOW)
    assert str(raised.value).startswith(message)


def test_cursor_is_a_whole_number() -> None:
    assert parse_cursor("12") == 12
    for text in ("", "-1", "1.5", "1 OR 1=1", "9" * 19, "\u0661"):
        with pytest.raises(InferenceError, match="Expected the value of next from the previous page"):
            parse_cursor(text)
