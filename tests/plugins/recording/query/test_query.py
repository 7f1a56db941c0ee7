"""Parsing of queries, and how SQLite runs them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine

from app.plugins.recording.inference_query import InferenceQuery
from app.plugins.recording.query.filters import matching_numbers
from tasks.inference.error import ErrorKind, InferenceError
from tests.support.data.recorded_rows import recorded_rows, write_store

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
    condition = matching_numbers(InferenceQuery(since=text, until=text), "sqlite", now=NOW).compile()
    assert list(condition.params.values()) == [expected, expected]
    assert "started >= " in str(condition)
    assert "started < " in str(condition)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (InferenceQuery(since="yesterday"), "since: Expected a moment such as"),
        (InferenceQuery(until="2026-13-01"), "until: Expected a moment such as"),
        (InferenceQuery(since="9999999999d"), "since: Expected a moment"),
        (InferenceQuery(error="bad"), "error: Expected one of any, none, invalid_request"),
        (InferenceQuery(truth="maybe"), "truth: Expected yes, no or wrong, got 'maybe'"),
        (InferenceQuery(min_score=1.5), "min-score: Expected a score within 0..1, got 1.5"),
        (InferenceQuery(max_score=float("nan")), "max-score: Expected a score within 0..1, got nan"),
        (InferenceQuery(model="m" * 20_001), "model: Expected at most 20000 characters, got 20001"),
        (InferenceQuery(label="a\0b"), "label: Expected text without zero characters"),
        (InferenceQuery(request_id="\udc80"), "request-id: Expected text without zero characters"),
        (InferenceQuery(where=["a = 1"] * 33), "where: Expected at most 32 conditions"),
        (InferenceQuery(where=[" and ".join(["a = 1"] * 2000)]), "where: Expected at most 32 conditions"),
    ],
)
def test_error_names_the_invalid_parameter(query: InferenceQuery, message: str) -> None:
    with pytest.raises(InferenceError) as raised:
        matching_numbers(query, "sqlite", now=NOW)
    assert str(raised.value).startswith(message)
    assert raised.value.kind is ErrorKind.INVALID_REQUEST


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "got ''"),
        ("camera", "got 'camera'"),
        ("camera = north", "got 'camera = north'"),
        ("a = 3 and b", "got 'b'"),
        *((text, "Expected conditions") for text in ('a = "n', "a = 3 b = 4", "a = 3 and", "a = 3 and ", "a = \u0661")),
        *((f"a > {text}", "Expected a number") for text in ("3x", "1e999", "1-2", "9" * 400)),
        ('a = "\\x"', "Expected a number, or text in quotes as in JSON"),
        ('a = "\\ud800"', "Expected a number, or text in quotes as in JSON"),
        ('a = "\\u0000"', "zero characters"),
        ("a = '\0'", "zero characters"),
        ("a = " + "9" * 30_000, "Expected at most 20000 characters"),
    ],
)
def test_error_describes_the_invalid_condition(text: str, message: str) -> None:
    with pytest.raises(InferenceError) as raised:
        matching_numbers(InferenceQuery(where=[text]), "sqlite")
    assert message in raised.value.message
    assert raised.value.path == "where"


@given(st.text(alphabet=st.characters() | st.sampled_from("ab.=<>!\"'\\ ()[],:019e-"), max_size=60))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    try:
        matching_numbers(InferenceQuery(where=[text]), "sqlite")
    except InferenceError as error:
        assert error.path == "where"  # noqa: PT017


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        (InferenceQuery(label="car"), []),
        (InferenceQuery(label="car", where=["altitude > 5"]), ["recordings_metadata"]),
        (InferenceQuery(label="car", min_score=0.5, model="detector"), ["recordings"]),
    ],
)
def test_frequent_label_is_read_from_its_index_without_sorting(
    tmp_path: Path, query: InferenceQuery, tables: list[str]
) -> None:
    rows = [recorded_rows(str(count), {"altitude": count}, [{"label": "car"}]) for count in range(1500)]
    store = write_store(tmp_path / "store.db", *rows)
    statement = matching_numbers(query, "sqlite", limit=10)
    engine = create_engine(f"sqlite:///{store}")
    with engine.connect() as connection:
        sql = statement.compile(engine, compile_kwargs={"literal_binds": True})
        plan = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}")]
    engine.dispose()
    assert "inference_labels_label (label=?" in plan[0]
    assert plan[1:] == [f"SEARCH {table} USING INTEGER PRIMARY KEY (rowid=?)" for table in tables]
