"""Parsing of queries, which filter comes first, and that SQLite does not scan an index again for each inference."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, create_engine, event

from app.plugins.recording.inference_query import InferenceQuery
from app.plugins.recording.query.filters import query_filters
from app.plugins.recording.query.search import newest_numbers
from app.plugins.recording.stores.rows import Rows
from tasks.inference.error import ErrorKind, InferenceError
from tests.support.data.recorded_rows import Value, recorded_rows, write_store

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
    (time_range,) = query_filters(InferenceQuery(since=text, until=text), NOW)
    condition = time_range.alternatives[0].compile()
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
        (InferenceQuery(min_score=1.5), "min-score: Expected a score within 0..1, got 1.5"),
        (InferenceQuery(max_score=float("nan")), "max-score: Expected a score within 0..1, got nan"),
        (InferenceQuery(model="m" * 20_001), "model: Expected at most 20000 characters, got 20001"),
        (InferenceQuery(label="a\0b"), "label: Expected text without zero characters"),
        (InferenceQuery(request_id="\udc80"), "request-id: Expected text without zero characters"),
        (InferenceQuery(where=["a = 1"] * 33), "where: Expected at most 32 conditions"),
        (InferenceQuery(where=[" and ".join(["a = 1"] * 2000)]), "where: Expected at most 32 conditions"),
        *(
            (InferenceQuery(box=box), "box: Expected south,west,north,east in degrees")
            for box in ("x", "1,2,3", "2,0,1,0", "0,0,nan,1", "0,-181,1,1")
        ),
    ],
)
def test_error_names_the_invalid_parameter(query: InferenceQuery, message: str) -> None:
    with pytest.raises(InferenceError) as raised:
        query_filters(query, NOW)
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
        query_filters(InferenceQuery(where=[text]))
    assert message in raised.value.message
    assert raised.value.path == "where"


@pytest.mark.parametrize(
    "text", ['camera != "a"', 'camera in ("a", "b")', "pose.yaw > 1.5", "frame:int = 3", 'camera = "a" or frame = 3']
)
def test_other_conditions_are_referred_to_sql(text: str) -> None:
    with pytest.raises(InferenceError, match="use charioteer inferences --sql for others"):
        query_filters(InferenceQuery(where=[text]))


@given(st.text(alphabet=st.characters() | st.sampled_from("ab.=<>!\"'\\ ()[],:019e-"), max_size=60))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    try:
        filters = query_filters(InferenceQuery(where=[text]))
    except InferenceError as error:
        assert error.path == "where"  # noqa: PT017
    else:
        assert filters


_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@given(_texts, _texts)
def test_quoted_key_and_text_are_parsed_back(key: str, value: str) -> None:
    (condition,) = query_filters(InferenceQuery(where=[f"{json.dumps(key)} = {json.dumps(value)}"]))
    (alternative,) = condition.alternatives
    assert sorted(alternative.compile().params.values()) == sorted([key, value])


COUNT = 3000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of thousands of inferences, with frequent and rare metadata, labels and places."""
    file, rows = tmp_path_factory.mktemp("plan") / "store.db", list[Rows]()
    for number in range(COUNT):
        metadata: dict[str, Value] = {
            "camera": "north" if number % 2 else "south", "altitude": number % 100, "run": f"run-{number // 10}",
            "pose": {"yaw": number / COUNT}, "latitude": number % 90.0, "longitude": number % 180.0,
        }  # fmt: skip
        labels = [{"label": "car" if number % 3 else "dog", "score": number / COUNT}]
        model = "rare" if number == 5 else "usual"
        rows.append(recorded_rows(str(number), metadata, labels, started=number * 1_000_000, model=model))
    write_store(file, *rows)
    return file


class PlanRecorder:
    """Keep SQLite's plan of the last statement, and its steps that repeat for each inference."""

    def __init__(self, connection: Connection) -> None:
        self.plan: list[str] = []
        self.repeated: list[str] = []
        self.connection = connection
        event.listen(connection, "before_cursor_execute", self._explain)

    def _explain(self, _: object, cursor: Any, statement: str, values: Any, *__: object) -> None:
        self.plan, self.repeated = [], []
        nested: set[int] = set()
        for number, parent, _, step in cursor.execute(f"EXPLAIN QUERY PLAN {statement}", values):
            self.plan.append(step)
            if parent in nested:
                self.repeated.append(step)
            if parent in nested or step.startswith("CORRELATED"):
                nested.add(number)


@pytest.fixture
def recorder(store: Path) -> Iterator[PlanRecorder]:
    engine = create_engine(f"sqlite:///{store}")
    with engine.connect() as connection:
        yield PlanRecorder(connection)
    engine.dispose()


def plan(recorder: PlanRecorder, query: InferenceQuery, expected: int = 10) -> list[str]:
    """Return the plan of a query; assert that it finds `expected` inferences and repeats no index scan."""
    assert len(newest_numbers(recorder.connection, query_filters(query, COUNT), None, 10)) == expected
    searches = [step for step in recorder.repeated if step.startswith(("SEARCH", "SCAN"))]
    assert searches
    assert all("PRIMARY KEY" in step or "number=?" in step for step in searches), recorder.plan
    return recorder.plan


TWO_FILTERS = [
    InferenceQuery(where=['camera = "north"', "altitude > 90"]),
    InferenceQuery(where=["altitude > 98", "latitude > 50"]),
    InferenceQuery(where=['camera < "o"', "altitude <= 2"]),
    InferenceQuery(where=["altitude = 7", 'camera = "north"']),
    InferenceQuery(label="car", since="1000s"),
    InferenceQuery(label="dog", min_score=0.9, where=["altitude > 50"]),
    InferenceQuery(max_score=0.5, where=["altitude > 50"]),
    InferenceQuery(box="0,0,20,20", where=['camera = "north"']),
    InferenceQuery(box="0,0,80,170", label="car"),
    InferenceQuery(model="usual", error="none", where=["altitude = 7"]),
]


@pytest.mark.parametrize("query", TWO_FILTERS)
def test_two_filters_scan_no_index_for_each_inference(recorder: PlanRecorder, query: InferenceQuery) -> None:
    plan(recorder, query)


def test_rare_filter_comes_first(recorder: PlanRecorder) -> None:
    first = plan(recorder, InferenceQuery(where=['camera = "north"', 'run = "run-7"']), 5)[0]
    assert "inference_metadata_tv (key=? AND tv=?" in first
    assert "inferences_model" in plan(recorder, InferenceQuery(model="rare", where=["altitude < 100"]), 1)[0]


@pytest.mark.parametrize(
    ("conditions", "index"),
    [
        (['camera = "north"', "altitude >= 0"], "inference_metadata_tv (key=? AND tv=? AND number>? AND number<?)"),
        (["altitude >= 1", "latitude >= 1.0"], "INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
    ],
)
def test_frequent_filters_are_scanned_in_order_without_sorting(
    recorder: PlanRecorder, conditions: list[str], index: str
) -> None:
    steps = plan(recorder, InferenceQuery(where=conditions))
    assert index in steps[0]
    assert not any("TEMP B-TREE" in step for step in steps)


def test_filter_without_match_needs_no_subquery(recorder: PlanRecorder) -> None:
    filters = query_filters(InferenceQuery(where=['camera = "nowhere"', "altitude > 0"]))
    assert newest_numbers(recorder.connection, filters, None, 10) == []
    assert not any("CORRELATED" in step for step in recorder.plan)
