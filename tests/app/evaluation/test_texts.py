"""Answers: exact match, token F1, ANLS."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.evaluation.answers import Answered
from app.evaluation.texts import anls, edit_distance, exact_match, measure_texts, token_f1
from tests.support.evaluations import item


@pytest.mark.parametrize(
    ("answer", "right", "exact", "f1", "near"),
    [
        ("star", ["star"], 1, 1, 1),
        ("A Star.", ["star"], 1, 1, 4 / 7),
        ("the red star", ["star", "red star"], 1, 1, 8 / 12),
        ("red star", ["blue star"], 0, 0.5, 5 / 9),
        ("", ["star"], 0, 0, 0),
        ("", [""], 1, 1, 1),
        ("stars", ["star"], 0, 0, 0.8),
        ("no", ["yes"], 0, 0, 0),
        ("two two", ["two"], 0, 2 / 3, 0),
        ("\u0065\u0301t\u00e9", ["\u00e9t\u00e9"], 1, 1, 1),
    ],
)
def test_by_hand(answer: str, right: list[str], exact: float, f1: float, near: float) -> None:
    assert exact_match(answer, right) == exact
    assert token_f1(answer, right) == pytest.approx(f1)
    assert anls(answer, right) == pytest.approx(near)


def slow_distance(one: str, other: str) -> int:
    row = list(range(len(other) + 1))
    for index, letter in enumerate(one, 1):
        before, row[0] = row[0], index
        for place, across in enumerate(other, 1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (letter != across))
    return row[-1]


@given(one=st.text("abc", max_size=12), other=st.text("abc", max_size=12))
def test_the_distance_is_levenshteins(one: str, other: str) -> None:
    assert edit_distance(one, other) == slow_distance(one, other)


@given(answer=st.text(max_size=20), right=st.lists(st.text(max_size=20), min_size=1, max_size=3))
def test_measures_are_shares_and_agree(answer: str, right: list[str]) -> None:
    values = exact_match(answer, right), token_f1(answer, right), anls(answer, right)
    assert all(0 <= each <= 1 for each in values)
    if values[0]:
        assert values[1] == 1
    assert anls(answer, [*right, answer]) == 1


def asked(answer: str, right: str, kind: str) -> Answered:
    about = item(f"{answer}#{kind}", question="What?", answers=[right], metadata={"kind": kind})
    return Answered(item=about, answer=answer)


def test_means_and_slices() -> None:
    measures = measure_texts([asked("a b", "b", "x"), asked("two", "three", "y"), asked("", "six", "y")], ["kind"])
    assert [each.value for each in measures.figures] == [pytest.approx(1 / 3), pytest.approx(1 / 3), 0]
    (table,) = measures.tables
    assert table.rows == (("kind = x", 1, 1, 1, 0), ("kind = y", 2, 0, 0, 0))
    assert [mistake.why for mistake in measures.mistakes] == [
        "What? Right: three. Answered: two",
        "What? Right: six. Answered: (nothing)",
    ]


def test_nothing() -> None:
    assert {each.value for each in measure_texts([]).figures} == {None}
