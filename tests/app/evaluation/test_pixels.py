"""Pixel metrics of segmentation."""

import pytest

from app.evaluation.answers import EvaluatedItem, PredictedObject
from app.evaluation.dataset import LabelledObject, Ring
from app.evaluation.pixels import measure_pixels
from tests.support.evaluation_samples import item


def square(left: int, top: int, side: int) -> tuple[Ring, ...]:
    """Return an outline between pixel centres that covers `side` by `side` pixels."""
    right, bottom = left + side - 1, top + side - 1
    return (((left, top), (right, top), (right, bottom), (left, bottom)),)


def truth(label: str, rings: tuple[Ring, ...], *, ignored: bool = False) -> LabelledObject:
    return LabelledObject(label=label, rings=rings, ignored=ignored)


def answered(objects: list[LabelledObject], found: list[tuple[str, float, tuple[Ring, ...]]]) -> EvaluatedItem:
    findings = tuple(PredictedObject(label=label, score=score, rings=rings) for label, score, rings in found)
    return EvaluatedItem(item=item(objects=objects, size=(20, 10)), predictions=findings)


def test_metrics_match_hand_computed_values() -> None:
    image = answered([truth("cat", square(0, 0, 4))], [("cat", 0.9, square(2, 0, 4)), ("cat", 0.1, square(10, 0, 4))])
    figures, table, _ = measure_pixels([image], ["cat", "dog"], 0.5)
    assert [figure.value for figure in figures] == [pytest.approx(1 - 16 / 200), pytest.approx(8 / 24)]
    assert table is not None
    assert table.rows == (("cat", pytest.approx(8 / 24), pytest.approx(0.5), pytest.approx(0.5)),)


def test_pixel_belongs_to_the_best_finding() -> None:
    found = [("dog", 0.6, square(0, 0, 4)), ("cat", 0.9, square(0, 0, 4))]
    figures, _, _ = measure_pixels([answered([truth("cat", square(0, 0, 4))], found)], ["cat", "dog"], 0.5)
    assert figures[0].value == 1.0


def test_ignored_pixels_are_not_counted() -> None:
    objects = [truth("cat", square(0, 0, 4)), truth("cat", square(10, 0, 4), ignored=True)]
    found = [("cat", 0.9, square(0, 0, 4)), ("cat", 0.9, square(10, 0, 4))]
    figures, _, _ = measure_pixels([answered(objects, found)], ["cat"], 0.5)
    assert [figure.value for figure in figures] == [1.0, 1.0]


def test_metrics_of_no_images_are_none() -> None:
    figures, table, _ = measure_pixels([], ["cat"], 0.5)
    assert [figure.value for figure in figures] == [None, None]
    assert table is None


def test_image_with_too_many_pixels_is_skipped() -> None:
    small = answered([truth("cat", square(0, 0, 4))], [("cat", 0.9, square(0, 0, 4))])
    large = EvaluatedItem(item=item("large.png", [truth("dog", square(0, 0, 4))], size=(60_000, 60_000)))
    figures, table, notes = measure_pixels([small, large], ["cat", "dog"], 0.5)
    assert [figure.value for figure in figures] == [1.0, 1.0]
    assert table is not None
    assert len(table.rows) == 1
    assert notes == ("1 images of more than 268435456 pixels are in no figure of pixels.",)
    assert measure_pixels([large], ["cat", "dog"], 0.5)[0][0].value is None
