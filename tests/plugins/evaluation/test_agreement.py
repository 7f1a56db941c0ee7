"""Compare answers without labels."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from app.plugins.evaluation.agreement import compare_answers
from app.plugins.evaluation.dataset import EvaluationError, Item

Answer = Sequence[dict[str, object]]


def item(name: str) -> Item:
    return Item(id=name, image=Path(name), width=200, height=100)


def box(label: str, score: float, left: float, width: float = 10) -> dict[str, object]:
    return {"label": label, "score": score, "xmin": left, "ymin": 0.0, "xmax": left + width, "ymax": 10.0}


def test_objects_agree_if_they_have_a_partner_in_place() -> None:
    expected: Answer = [box("a", 0.9, 0), box("a", 0.8, 50), box("b", 0.7, 100)]
    found: Answer = [box("a", 0.85, 50), box("a", 0.9, 0, 8), box("c", 0.7, 100)]
    agreement = compare_answers([item("x")], {"x": expected}, {"x": found})
    assert (agreement.matched, agreement.objects, agreement.labels) == (2, 3, 0)
    assert agreement.mean_iou == pytest.approx(0.9)
    assert agreement.min_iou == pytest.approx(0.8)
    assert agreement.score == pytest.approx(1 / 3)
    assert agreement.score_difference == pytest.approx(0.05)


def test_images_without_objects_agree() -> None:
    found: Answer = [box("a", 1, 0)]
    expected: Mapping[str, Answer] = {"x": [], "y": found}
    agreement = compare_answers([item("x"), item("y")], expected, expected)
    assert (agreement.score, agreement.labels, agreement.min_iou) == (1, 1, 1)
    assert compare_answers([item("x"), item("y")], expected, {"x": found, "y": found}).score == 0.5


def test_classes_agree_by_the_best_one() -> None:
    expected: Answer = [{"label": "a", "score": 0.6}, {"label": "b", "score": 0.4}]
    swapped: Answer = [{"label": "b", "score": 0.55}, {"label": "a", "score": 0.45}]
    agreement = compare_answers([item("x"), item("y")], {"x": expected, "y": expected}, {"x": expected, "y": swapped})
    assert (agreement.score, agreement.labels, agreement.matched) == (0.5, 0.5, None)
    assert agreement.score_difference == pytest.approx(0.15)


def test_texts_agree_if_they_are_equal() -> None:
    expected: Answer = [{"prompt": "p", "answer": "two"}]
    agreement = compare_answers(
        [item("x"), item("y")], {"x": expected, "y": expected}, {"x": expected, "y": [{"prompt": "p", "answer": "2"}]}
    )
    assert agreement.score == 0.5


def test_answers_that_are_not_finite_cannot_be_compared() -> None:
    answers = {"x": [box("a", float("nan"), 0)]}
    with pytest.raises(EvaluationError, match="cannot be compared: score: Expected a finite number, got nan"):
        compare_answers([item("x")], answers, answers)


def contour(*xs: int) -> dict[str, object]:
    points = [(xs[0], 0), (xs[1], 0), (xs[1], 40), (xs[0], 40)]
    return {"label": "a", "score": 1.0, "contour": [[{"x": x, "y": y} for x, y in points]]}


def oriented(width: float) -> dict[str, object]:
    return {"label": "a", "score": 1.0, "cx": 0.5, "cy": 0.5, "w": width, "h": 0.1, "r": 0.3}


@pytest.mark.parametrize(("expected", "found"), [(contour(0, 100), contour(0, 80)), (oriented(0.5), oriented(0.4))])
def test_outlines_are_compared_by_their_area(expected: dict[str, object], found: dict[str, object]) -> None:
    agreement = compare_answers([item("x")], {"x": [expected]}, {"x": [found]})
    assert agreement.mean_iou == pytest.approx(0.8, abs=0.02)
