"""Metrics of text answers (exact match, token F1, ANLS), and pixel metrics of segmentation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.plugins.evaluation.answers import EvaluatedItem, PredictedObject
from app.plugins.evaluation.dataset import LabelledObject, Ring
from app.plugins.evaluation.metrics.pixels import measure_pixels
from app.plugins.evaluation.metrics.texts import anls, edit_distance, exact_match, measure_texts, token_f1
from tests.support.data.evaluation_samples import item


@pytest.mark.parametrize(
    ("answer", "right", "exact", "f1", "similarity"),
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
def test_metrics_match_hand_computed_values(
    answer: str, right: list[str], exact: float, f1: float, similarity: float
) -> None:
    assert exact_match(answer, right) == exact
    assert token_f1(answer, right) == pytest.approx(f1)
    assert anls(answer, right) == pytest.approx(similarity)


def slow_distance(one: str, other: str) -> int:
    row = list(range(len(other) + 1))
    for index, letter in enumerate(one, 1):
        before, row[0] = row[0], index
        for column, other_letter in enumerate(other, 1):
            changed = min(row[column] + 1, row[column - 1] + 1, before + (letter != other_letter))
            before, row[column] = row[column], changed
    return row[-1]


@given(one=st.text("abc", max_size=12), other=st.text("abc", max_size=12))
def test_edit_distance_equals_levenshtein(one: str, other: str) -> None:
    assert edit_distance(one, other) == slow_distance(one, other)


def answered(answer: str, right: str, kind: str) -> EvaluatedItem:
    question_item = item(f"{answer}#{kind}", question="What?", answers=[right], metadata={"kind": kind})
    return EvaluatedItem(item=question_item, answer=answer)


def test_means_and_slices_are_computed() -> None:
    results = [answered("a b", "b", "x"), answered("two", "three", "y"), answered("", "six", "y")]
    measures = measure_texts(results, ["kind"])
    assert [figure.value for figure in measures.figures] == [pytest.approx(1 / 3), pytest.approx(1 / 3), 0]
    (table,) = measures.tables
    assert table.rows == (("kind = x", 1, 1, 1, 0), ("kind = y", 2, 0, 0, 0))
    assert [mistake.description for mistake in measures.mistakes] == [
        "What? Right: three. Answered: two",
        "What? Right: six. Answered: (nothing)",
    ]


def test_metrics_of_no_answers_are_none() -> None:
    assert {figure.value for figure in measure_texts([]).figures} == {None}


def square(left: int, top: int, side: int) -> tuple[Ring, ...]:
    """Return an outline between pixel centres that covers `side` by `side` pixels."""
    right, bottom = left + side - 1, top + side - 1
    return (((left, top), (right, top), (right, bottom), (left, bottom)),)


def truth(label: str, left: int, top: int, side: int, *, ignored: bool = False) -> LabelledObject:
    """Return a polygon along the edges of `side` by `side` pixels."""
    right, bottom = left + side, top + side
    rings = (((left, top), (right, top), (right, bottom), (left, bottom)),)
    return LabelledObject(label=label, rings=rings, ignored=ignored)


def segmented(objects: list[LabelledObject], found: list[tuple[str, float, tuple[Ring, ...]]]) -> EvaluatedItem:
    findings = tuple(PredictedObject(label=label, score=score, rings=rings) for label, score, rings in found)
    return EvaluatedItem(item=item(objects=objects, size=(20, 10)), predictions=findings)


def test_pixel_metrics_match_hand_computed_values() -> None:
    image = segmented([truth("cat", 0, 0, 4)], [("cat", 0.9, square(2, 0, 4)), ("cat", 0.1, square(10, 0, 4))])
    measures = measure_pixels([image], ["cat", "dog"], 0.5)
    assert [figure.value for figure in measures.figures] == [pytest.approx(1 - 16 / 200), pytest.approx(8 / 24)]
    (table,) = measures.tables
    assert table.rows == (("cat", pytest.approx(8 / 24), pytest.approx(0.5), pytest.approx(0.5)),)


def test_pixel_belongs_to_the_best_finding() -> None:
    found = [("dog", 0.6, square(0, 0, 4)), ("cat", 0.9, square(0, 0, 4))]
    measures = measure_pixels([segmented([truth("cat", 0, 0, 4)], found)], ["cat", "dog"], 0.5)
    assert measures.figures[0].value == 1.0


def test_ignored_pixels_are_not_counted() -> None:
    objects = [truth("cat", 0, 0, 4), truth("cat", 10, 0, 4, ignored=True)]
    found = [("cat", 0.9, square(0, 0, 4)), ("cat", 0.9, square(10, 0, 4))]
    measures = measure_pixels([segmented(objects, found)], ["cat"], 0.5)
    assert [figure.value for figure in measures.figures] == [1.0, 1.0]


def test_class_without_objects_is_not_in_the_mean() -> None:
    found = [("cat", 0.9, square(0, 0, 4)), ("dog", 0.9, square(10, 0, 4))]
    measures = measure_pixels([segmented([truth("cat", 0, 0, 4)], found)], ["cat", "dog"], 0.5)
    assert measures.figures[1].value == 1.0
    (table,) = measures.tables
    assert [row[0] for row in table.rows] == ["cat"]


def test_pixel_metrics_of_no_images_are_none() -> None:
    measures = measure_pixels([], ["cat"], 0.5)
    assert [figure.value for figure in measures.figures] == [None, None]
    assert measures.tables == ()
