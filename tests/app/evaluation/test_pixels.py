"""Segmentation pixel by pixel."""

import pytest

from app.evaluation.answers import Answered, Found
from app.evaluation.dataset import LabelledObject, Ring
from app.evaluation.pixels import measure_pixels
from tests.support.evaluations import item


def square(left: int, top: int, side: int) -> tuple[Ring, ...]:
    """From pixel centre to pixel centre: `side` pixels each way."""
    right, bottom = left + side - 1, top + side - 1
    return (((left, top), (right, top), (right, bottom), (left, bottom)),)


def truth(label: str, rings: tuple[Ring, ...], *, ignored: bool = False) -> LabelledObject:
    return LabelledObject(label=label, rings=rings, ignored=ignored)


def answered(objects: list[LabelledObject], found: list[tuple[str, float, tuple[Ring, ...]]]) -> Answered:
    guesses = tuple(Found(label=label, score=score, rings=rings) for label, score, rings in found)
    return Answered(item=item(objects=objects, size=(20, 10)), found=guesses)


def test_by_hand() -> None:
    one = answered([truth("cat", square(0, 0, 4))], [("cat", 0.9, square(2, 0, 4)), ("cat", 0.1, square(10, 0, 4))])
    figures, table, _ = measure_pixels([one], ["cat", "dog"], 0.5)
    assert [each.value for each in figures] == [pytest.approx(1 - 16 / 200), pytest.approx(8 / 24)]
    assert table is not None
    assert table.rows == (("cat", pytest.approx(8 / 24), pytest.approx(0.5), pytest.approx(0.5)),)


def test_the_best_finding_has_the_pixel() -> None:
    both = [("dog", 0.6, square(0, 0, 4)), ("cat", 0.9, square(0, 0, 4))]
    figures, _, _ = measure_pixels([answered([truth("cat", square(0, 0, 4))], both)], ["cat", "dog"], 0.5)
    assert figures[0].value == 1.0


def test_ignored_pixels_count_for_nobody() -> None:
    objects = [truth("cat", square(0, 0, 4)), truth("cat", square(10, 0, 4), ignored=True)]
    found = [("cat", 0.9, square(0, 0, 4)), ("cat", 0.9, square(10, 0, 4))]
    figures, _, _ = measure_pixels([answered(objects, found)], ["cat"], 0.5)
    assert [each.value for each in figures] == [1.0, 1.0]


def test_nothing() -> None:
    figures, table, _ = measure_pixels([], ["cat"], 0.5)
    assert [each.value for each in figures] == [None, None]
    assert table is None


def test_an_image_whose_masks_fit_into_no_memory_is_left_out() -> None:
    small = answered([truth("cat", square(0, 0, 4))], [("cat", 0.9, square(0, 0, 4))])
    large = Answered(item=item("large.png", [truth("dog", square(0, 0, 4))], size=(60_000, 60_000)))
    figures, table, notes = measure_pixels([small, large], ["cat", "dog"], 0.5)
    assert [each.value for each in figures] == [1.0, 1.0]
    assert table is not None
    assert len(table.rows) == 1
    assert notes == ("1 images of more than 268435456 pixels are in no figure of pixels.",)
    assert measure_pixels([large], ["cat", "dog"], 0.5)[0][0].value is None
