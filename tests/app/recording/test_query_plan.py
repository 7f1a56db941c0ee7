"""How a store is asked: what leads, and that SQLite never walks an index again for every inference."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Executable, Row, create_engine, event

from app.recording.query import QueryText, read_query
from app.recording.query_parts import parts_of
from app.recording.query_plan import newest_numbers
from app.recording.sqlite_store import SqliteStore
from tests.support.kept import rows

COUNT = 3000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thousands of inferences, with frequent and rare metadata, labels and places."""
    file = tmp_path_factory.mktemp("plan") / "store.db"
    store = SqliteStore(file)
    store.open()
    store.write(
        [
            rows(
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


class Asked:
    """A connection that keeps SQLite's plan of the last statement, and what of it is done for every inference."""

    def __init__(self, connection: Connection) -> None:
        self.plan: list[str] = []
        self.repeated: list[str] = []
        self._connection = connection
        event.listen(connection, "before_cursor_execute", self._explain)

    def rows(self, statement: Executable) -> Sequence[Row[Any]]:
        return self._connection.execute(statement).all()

    def _explain(self, _: object, cursor: Any, statement: str, values: Any, *__: object) -> None:
        self.plan, self.repeated = [], []
        within: set[int] = set()
        for number, parent, _, step in cursor.execute(f"EXPLAIN QUERY PLAN {statement}", values):
            self.plan.append(step)
            if parent in within:
                self.repeated.append(step)
            if parent in within or step.startswith("CORRELATED"):
                within.add(number)


@pytest.fixture
def asked(store: Path) -> Iterator[Asked]:
    engine = create_engine(f"sqlite:///{store}")
    with engine.connect() as connection:
        yield Asked(connection)
    engine.dispose()


def plan(asked: Asked, text: QueryText, expected: int, limit: int = 10) -> list[str]:
    """The plan of the statement that finds the inferences; nothing in it may be done for every inference by a walk."""
    assert len(newest_numbers(asked.rows, parts_of(read_query(text, COUNT), "sqlite"), None, limit)) == expected
    searches = [each for each in asked.repeated if each.startswith(("SEARCH", "SCAN"))]
    assert searches
    # A ring's edges are a table too, of a few rows.
    usual = ("PRIMARY KEY", "(key=? AND tv=? AND number=?)", "edges", "CONSTANT ROWS")
    assert all(any(part in each for part in usual) for each in searches), asked.plan
    return asked.plan


TWO_FILTERS = [
    (QueryText(where=['camera = "north"', "altitude > 90"]), 10),
    (QueryText(where=["altitude > 98", "pose.yaw > 0.5"]), 10),
    (QueryText(where=['camera != "north"', "altitude <= 2"]), 10),
    (QueryText(where=['run contains "-29"', 'camera in ("north", "east")']), 10),
    (QueryText(label="car", since="1000s"), 10),
    (QueryText(label="dog", min_score=0.9, where=["altitude > 50"]), 10),
    (QueryText(near="10,10,1000", where=['camera = "north"']), 10),
    (QueryText(polygon="0,0 0,170 80,170 80,0", label="car"), 10),
    (QueryText(model="usual", error="none", where=["altitude = 7"]), 10),
]


@pytest.mark.parametrize(("text", "expected"), TWO_FILTERS)
def test_two_filters_walk_nothing_twice(asked: Asked, text: QueryText, expected: int) -> None:
    plan(asked, text, expected)


def test_the_rare_filter_leads(asked: Asked) -> None:
    first = plan(asked, QueryText(where=['camera = "north"', 'run = "run-7"']), 5)[0]
    assert "inference_metadata_tv (key=? AND tv=?" in first
    assert "inferences_model" in plan(asked, QueryText(model="rare", where=["altitude < 100"]), 1)[0]


def test_a_frequent_equality_is_walked_in_the_order_of_numbers(asked: Asked) -> None:
    steps = plan(asked, QueryText(where=['camera = "north"', "altitude >= 0"]), 10)
    assert "inference_metadata_tv (key=? AND tv=? AND number>? AND number<?)" in steps[0]
    assert not any("TEMP B-TREE" in each for each in steps)


def test_frequent_ranges_are_walked_from_the_newest_on(asked: Asked) -> None:
    steps = plan(asked, QueryText(where=["altitude >= 1", "latitude >= 1.0"]), 10)
    assert "INTEGER PRIMARY KEY (rowid>? AND rowid<?)" in steps[0]
    assert not any("TEMP B-TREE" in each for each in steps)


def test_nothing_more_is_asked_when_a_filter_has_no_match(asked: Asked) -> None:
    query = read_query(QueryText(where=['camera = "nowhere"', "altitude > 0"]))
    assert newest_numbers(asked.rows, parts_of(query, "sqlite"), None, 10) == []
    assert not any("CORRELATED" in each for each in asked.plan)
