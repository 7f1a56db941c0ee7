"""What a run says at its end."""

import sqlite3
from pathlib import Path

import pytest

from benchmarks.serving.section import Section
from soak.__main__ import END, MARK, written
from soak.ledger import Entry, Ledger, Window
from soak.references import same
from soak.report import failures, sections
from soak.server import Server, Usage
from soak.store import Kept, kept

KEPT = Kept(acknowledged=2, missing=[], doubled=[], rows=2)


def _ledger(*statuses: int) -> Ledger:
    ledger = Ledger()
    for index, status in enumerate(statuses):
        entry = Entry(id=f"soak-{index}", surface="kserve-v1", model="m", began=index, ended=index + 0.5, status=status)
        ledger.entries.append(entry)
    return ledger


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path, tmp_path / "store", tmp_path / "log")


def test_a_run_without_faults_of_the_server_passes(server: Server) -> None:
    ledger = _ledger(200, 429, 200)
    ledger.windows.append(Window(kind="five times the load", began=0.9, ended=1.2, statuses=frozenset({429})))
    assert failures(ledger, [], server, KEPT) == []


def test_whatever_is_wrong_is_said(server: Server) -> None:
    server.raised["ValueError"] = 2
    lacking = Kept(acknowledged=2, missing=["soak-0"], doubled=["soak-1", "soak-2"], rows=2)
    said = failures(_ledger(200, 0, 503), ["The server ended by itself"], server, lacking)
    assert [each.partition(":")[0] for each in said[:2]] == ["lost", "unexpected"]
    assert said[2:] == [
        "1 lost requests",
        "1 unexpected requests",
        "2 tracebacks of ValueError in the log",
        "1 acknowledged inferences are not in the store",
        "2 acknowledged inferences are more than once in the store",
        "The server ended by itself",
    ]


def test_the_tables_have_a_cell_for_every_column(server: Server) -> None:
    ledger = _ledger(200, 429, 200)
    ledger.windows.append(
        Window(kind="five times the load", began=0.9, ended=1.2, statuses=frozenset({429}), recovery=0.25)
    )
    server.said["model failed to load"] = 3
    usages = [
        Usage(life=1, at=second, requests=second * 100, resident=10**8 + second * 10**5, files=40, threads=20)
        for second in range(20)
    ]
    tables = {table.title: table for table in sections(ledger, usages, server, KEPT)}
    for table in tables.values():
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.columns)}
    assert list(tables["Requests"].rows[-1]) == ["all", 3, 2, 1, 0, 0, 0, 0]
    assert list(tables["Latency"].rows[0]) == ["kserve-v1", 2, 500.0, 500.0, 0, None, None]
    assert list(tables["Faults"].rows[0])[:2] == ["five times the load", 1]
    assert list(tables["What the server takes"].rows[-1]) == ["19", 1900, 101.9, pytest.approx(1000), 40, 20]


def test_the_store_is_held_against_what_was_answered(tmp_path: Path) -> None:
    store = tmp_path / "inferences.db"
    with sqlite3.connect(store) as connection:
        connection.execute("CREATE TABLE inferences (request_id, error)")
        rows = [("a", None), ("b", None), ("b", None), ("c", "model_failed"), ("d", None), ("d", None)]
        connection.executemany("INSERT INTO inferences VALUES (?, ?)", rows)
    connection.close()
    found = kept(store, {"a": 1, "b": 2, "c": 1, "d": 1, "e": 1})
    assert found == Kept(acknowledged=5, missing=["c", "e"], doubled=["d"], rows=6)


def test_tables_are_written_in_the_place_of_those_before() -> None:
    table = Section(title="Requests", about="All.", columns=["surface"], rows=[["kserve-v1"]])
    document = f"# Reliability\n\n{MARK}\n\nold\n\n{END}\n\n## Fuzzing\n"
    again = written(written(document, "30 minutes.", [table]), "5 minutes.", [table])
    assert again.startswith(f"# Reliability\n\n{MARK}\n\n5 minutes.\n\n### Requests\n")
    assert again.endswith(f"{END}\n\n## Fuzzing\n")
    assert "old" not in again
    assert "30 minutes" not in again
    with pytest.raises(ValueError, match="no place"):
        written("# Reliability\n", "30 minutes.", [table])


@pytest.mark.parametrize(
    ("found", "wanted", "equal"),
    [
        ([{"label": "a", "score": 0.50001}], [{"label": "a", "score": 0.5}], True),
        ([{"label": "a", "score": 0.51}], [{"label": "a", "score": 0.5}], False),
        ([{"label": "b", "score": 0.5}], [{"label": "a", "score": 0.5}], False),
        ([{"label": "a"}], [{"label": "a", "score": 0.5}], False),
        ([{"label": "a", "score": 0.5}], [], False),
        ([], [], True),
        ({}, [], False),
        ("1", 1, False),
        (True, True, True),
    ],
)
def test_values_are_compared_as_json_has_them(found: object, wanted: object, equal: bool) -> None:
    assert same(found, wanted) is equal
