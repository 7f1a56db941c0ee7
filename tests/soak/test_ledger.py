"""How requests are graded."""

import pytest

from soak.ledger import SERVER, Entry, Grade, Ledger, Window


def _entry(status: int, began: float = 10, ended: float = 11, model: str = "detector", note: str = "") -> Entry:
    return Entry(id="a", surface="http", model=model, began=began, ended=ended, status=status, note=note, rows=1)


def _graded(entry: Entry, *windows: Window) -> Grade:
    ledger = Ledger()
    ledger.windows += windows
    return ledger.grade(entry)


OVERLOAD = Window(kind="overload", began=5, ended=10.5, statuses=frozenset({429}))
UNLOADED = Window(kind="unload", began=5, ended=20, statuses=frozenset({404}), models=frozenset({"detector"}))
DRAINED = Window(kind="SIGTERM", began=10, ended=20, unanswered=True)
KILLED = Window(kind="SIGKILL", began=10, ended=20, unanswered=True, severed=True)


@pytest.mark.parametrize(
    ("entry", "windows", "grade"),
    [
        (_entry(200), [], Grade.RIGHT),
        (_entry(200), [KILLED], Grade.RIGHT),
        (_entry(200, note="another answer"), [], Grade.WRONG),
        (_entry(200, note="another answer"), [OVERLOAD, KILLED], Grade.WRONG),
        (_entry(429), [OVERLOAD], Grade.REFUSED),
        (_entry(429), [], Grade.UNEXPECTED),
        (_entry(503), [OVERLOAD], Grade.UNEXPECTED),
        (_entry(429, began=10.6), [OVERLOAD], Grade.UNEXPECTED),
        (_entry(429, began=3, ended=4.9), [OVERLOAD], Grade.UNEXPECTED),
        (_entry(404), [UNLOADED], Grade.REFUSED),
        (_entry(404, model="classifier"), [UNLOADED], Grade.UNEXPECTED),
        (_entry(404, model=SERVER), [UNLOADED], Grade.UNEXPECTED),
        (_entry(404), [OVERLOAD, UNLOADED], Grade.REFUSED),
        (_entry(0), [], Grade.LOST),
        (_entry(0), [OVERLOAD], Grade.LOST),
        (_entry(0, began=12, ended=13), [DRAINED], Grade.DOWN),
        (_entry(0, began=9.9, ended=13), [DRAINED], Grade.DOWN),
        (_entry(0, began=9.5, ended=13), [DRAINED], Grade.LOST),
        (_entry(0, began=9.5, ended=13), [KILLED], Grade.DOWN),
        (_entry(503, began=12, ended=13), [DRAINED], Grade.UNEXPECTED),
    ],
)
def test_a_request_is_graded_by_what_was_going_on(entry: Entry, windows: list[Window], grade: Grade) -> None:
    assert _graded(entry, *windows) is grade


def test_three_grades_fail_a_run() -> None:
    assert {grade for grade in Grade if grade.failure} == {Grade.LOST, Grade.UNEXPECTED, Grade.WRONG}


def test_what_was_answered_is_to_be_in_the_store() -> None:
    ledger = Ledger()
    ledger.entries += [
        Entry(id="a", surface="http", model="m", began=0, ended=1, status=200, rows=2),
        Entry(id="b", surface="http", model="m", began=0, ended=1, status=503, rows=1),
        Entry(id="c", surface="reads", model=SERVER, began=0, ended=1, status=200),
    ]
    assert ledger.acknowledged() == {"a": 2}
