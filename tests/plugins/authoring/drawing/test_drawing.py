"""Results drawn on images, and the colours of labels."""

import math
from itertools import combinations

import numpy as np

from app.plugins.authoring.drawing.image import draw
from app.plugins.authoring.drawing.palette import VIVID, colour_of, colours_of
from tasks.image_segmentation import Point, SegmentedObject
from tasks.image_text_to_text import LocatedPoint
from tasks.object_detection import DetectedObject, PosedObject

BLACK = np.zeros((60, 80, 3), np.uint8)
BOX = ("cat", 0.9, 20.0, 20.0, 70.0, 55.0)


def test_keypoints_are_dots_and_hidden_ones_are_left_out() -> None:
    posed = draw(BLACK, [PosedObject(*BOX, keypoints=[[40, 30, 0.9], [55, 45, 0.1]])], "box")
    assert tuple(posed[30, 40]) == colour_of("cat")
    assert np.array_equal(posed[40:50, 50:60], BLACK[40:50, 50:60])
    without_visibility = draw(BLACK, [PosedObject(*BOX, keypoints=[[55, 45]])], "box")
    assert tuple(without_visibility[45, 55]) == colour_of("cat")


def test_objects_of_an_answer_are_drawn_whatever_their_shape() -> None:
    contour = SegmentedObject("cat", 0.9, [[Point(x, y) for x, y in ((20, 20), (70, 20), (70, 55))]])
    for place, (x, y) in (
        (LocatedPoint("cat", 0.9, 40, 45), (40, 45)),
        (DetectedObject(*BOX), (70, 40)),
        (contour, (70, 40)),
    ):
        assert np.allclose(draw(BLACK, [place], "box")[y, x], colour_of("cat"), atol=20)


def test_labels_of_a_model_have_distinct_colours() -> None:
    animals = colours_of(tuple(f"animal {number}" for number in range(24)))
    assert min(math.dist(one, other) for one, other in combinations(animals.values(), 2)) > 40
    many = colours_of(tuple(f"class {number}" for number in range(1000)))
    assert set(many.values()) == set(VIVID)


def test_labels_have_the_colours_that_they_name() -> None:
    labels = ("red car", "Green car", "car, blue", "cat")
    red, green, blue, cat = (colour_of(label, labels) for label in labels)
    assert red[0] > 180 > 90 > max(red[1:])
    assert green[1] > 120 > 90 > green[0]
    assert blue[2] > 180 > 110 > max(blue[:2])
    assert min(math.dist(cat, other) for other in (red, green, blue)) > 60
    same = colours_of(("red car", "red bus", "red van", "red"))
    assert len(set(same.values())) == 4
    assert all(colour[0] > max(colour[1:]) for colour in same.values())


def test_labels_of_no_model_keep_one_colour() -> None:
    assert colour_of("dog") == colour_of("dog", ["cat", "red"])
    assert len({colour_of(f"class {number}") for number in range(40)}) > 25
