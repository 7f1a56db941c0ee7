"""Query plans: which filter comes first, and that SQLite does not scan an index again for each inference."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, event

from app.plugins.recording.inference_query import InferenceQuery
from app.plugins.recording.query.filters import query_filters
from app.plugins.recording.query.search import newest_numbers
from app.plugins.recording.stores.sqlite_store import SqliteStore
from tests.support.data.recorded_rows import recorded_rows

COUNT = 3000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of thousands of inferences, with frequent and rare metadata, labels and places."""
    file = tmp_path_factory.mktemp("plan") / "store.db"
    store = SqliteStore(file)
    store.open()
    store.write(
        [
            recorded_rows(
                str(number),
                {
                    "camera": "north" if number % 2 else "south",
                    "altitude": number % 100,
                    "run": f"run-{number // 10}",
                    "pose": {"yaw": number / COUNT},
                    "latitude": number % 90.0,
                    "longitude": number % 180.0,
                },
                [{"label": "car" if number % 3 else "dog", "score": number / COUNT}],
                started=number * 1_000_000,
                model="rare" if number == 5 else "usual",
            )
            for number in range(COUNT)
        ]
    )
    store.close()
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


def plan(recorder: PlanRecorder, query: InferenceQuery, expected: int, limit: int = 10) -> list[str]:
    """Return the plan of a query; assert that it finds `expected` inferences and repeats no index scan."""
    assert len(newest_numbers(recorder.connection, query_filters(query, COUNT), None, limit)) == expected
    searches = [step for step in recorder.repeated if step.startswith(("SEARCH", "SCAN"))]
    assert searches
    assert all("PRIMARY KEY" in step or "number=?" in step for step in searches), recorder.plan
    return recorder.plan


TWO_FILTERS = [
    (InferenceQuery(where=['camera = "north"', "altitude > 90"]), 10),
    (InferenceQuery(where=["altitude > 98", "latitude > 50"]), 10),
    (InferenceQuery(where=['camera < "o"', "altitude <= 2"]), 10),
    (InferenceQuery(where=["altitude = 7", 'camera = "north"']), 10),
    (InferenceQuery(label="car", since="1000s"), 10),
    (InferenceQuery(label="dog", min_score=0.9, where=["altitude > 50"]), 10),
    (InferenceQuery(max_score=0.5, where=["altitude > 50"]), 10),
    (InferenceQuery(box="0,0,20,20", where=['camera = "north"']), 10),
    (InferenceQuery(box="0,0,80,170", label="car"), 10),
    (InferenceQuery(model="usual", error="none", where=["altitude = 7"]), 10),
]


@pytest.mark.parametrize(("query", "expected"), TWO_FILTERS)
def test_two_filters_scan_no_index_for_each_inference(
    recorder: PlanRecorder, query: InferenceQuery, expected: int
) -> None:
    plan(recorder, query, expected)


def test_rare_filter_comes_first(recorder: PlanRecorder) -> None:
    first = plan(recorder, InferenceQuery(where=['camera = "north"', 'run = "run-7"']), 5)[0]
    assert "inference_metadata_tv (key=? AND tv=?" in first
    assert "inferences_model" in plan(recorder, InferenceQuery(model="rare", where=["altitude < 100"]), 1)[0]


def test_frequent_equality_is_scanned_in_order_without_sorting(recorder: PlanRecorder) -> None:
    steps = plan(recorder, InferenceQuery(where=['camera = "north"', "altitude >= 0"]), 10)
    assert "inference_metadata_tv (key=? AND tv=? AND number>? AND number<?)" in steps[0]
    assert not any("TEMP B-TREE" in step for step in steps)


def test_frequent_ranges_are_scanned_by_primary_key(recorder: PlanRecorder) -> None:
    steps = plan(recorder, InferenceQuery(where=["altitude >= 1", "latitude >= 1.0"]), 10)
    assert "INTEGER PRIMARY KEY (rowid>? AND rowid<?)" in steps[0]
    assert not any("TEMP B-TREE" in step for step in steps)


def test_filter_without_match_needs_no_subquery(recorder: PlanRecorder) -> None:
    filters = query_filters(InferenceQuery(where=['camera = "nowhere"', "altitude > 0"]))
    assert newest_numbers(recorder.connection, filters, None, 10) == []
    assert not any("CORRELATED" in step for step in recorder.plan)
