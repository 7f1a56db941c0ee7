"""Query plans: which filter comes first, and that SQLite does not scan an index again for each inference."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, event

from app.plugins.recording.inference_query import InferenceQuery
from app.plugins.recording.query.filters import query_filters
from app.plugins.recording.query.search import newest_numbers
from app.plugins.recording.stores.rows import Rows
from tests.support.data.recorded_rows import Value, recorded_rows, write_store

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
