"""Pixel metrics of segmentation."""

import pytest

from app.plugins.evaluation.answers import EvaluatedItem, PredictedObject
from app.plugins.evaluation.dataset import LabelledObject, Ring
from app.plugins.evaluation.metrics.pixels import measure_pixels
from tests.support.data.evaluation_samples import item


def square(left: int, top: int, side: int) -> tuple[Ring, ...]:
    """Return an outline between pixel centres that covers `side` by `side` pixels."""
    right, bottom = left + side - 1, top + side - 1
    return (((left, top), (right, top), (right, bottom), (left, bottom)),)


def truth(label: str, left: int, top: int, side: int, *, ignored: bool = False) -> LabelledObject:
    """Return a polygon along the edges of `side` by `side` pixels."""
    right, bottom = left + side, top + side
    rings = (((left, top), (right, top), (right, bottom), (left, bottom)),)
    return LabelledObject(label=label, rings=rings, ignored=ignored)


def answered(objects: list[LabelledObject], found: list[tuple[str, float, tuple[Ring, ...]]]) -> EvaluatedItem:
    findings = tuple(PredictedObject(label=label, score=score, rings=rings) for label, score, rings in found)
    return EvaluatedItem(item=item(objects=objects, size=(20, 10)), predictions=findings)


def test_metrics_match_hand_computed_values() -> None:
    image = answered([truth("cat", 0, 0, 4)], [("cat", 0.9, square(2, 0, 4)), ("cat", 0.1, square(10, 0, 4))])
    measures = measure_pixels([image], ["cat", "dog"], 0.5)
    assert [figure.value for figure in measures.figures] == [pytest.approx(1 - 16 / 200), pytest.approx(8 / 24)]
    (table,) = measures.tables
    assert table.rows == (("cat", pytest.approx(8 / 24), pytest.approx(0.5), pytest.approx(0.5)),)


def test_pixel_belongs_to_the_best_finding() -> None:
    found = [("dog", 0.6, square(0, 0, 4)), ("cat", 0.9, square(0, 0, 4))]
    measures = measure_pixels([answered([truth("cat", 0, 0, 4)], found)], ["cat", "dog"], 0.5)
    assert measures.figures[0].value == 1.0


def test_ignored_pixels_are_not_counted() -> None:
    objects = [truth("cat", 0, 0, 4), truth("cat", 10, 0, 4, ignored=True)]
    found = [("cat", 0.9, square(0, 0, 4)), ("cat", 0.9, square(10, 0, 4))]
    measures = measure_pixels([answered(objects, found)], ["cat"], 0.5)
    assert [figure.value for figure in measures.figures] == [1.0, 1.0]


def test_class_without_objects_is_not_in_the_mean() -> None:
    found = [("cat", 0.9, square(0, 0, 4)), ("dog", 0.9, square(10, 0, 4))]
    measures = measure_pixels([answered([truth("cat", 0, 0, 4)], found)], ["cat", "dog"], 0.5)
    assert measures.figures[1].value == 1.0
    (table,) = measures.tables
    assert [row[0] for row in table.rows] == ["cat"]


def test_metrics_of_no_images_are_none() -> None:
    measures = measure_pixels([], ["cat"], 0.5)
    assert [figure.value for figure in measures.figures] == [None, None]
    assert measures.tables == ()
