"""Results drawn on images."""

import numpy as np

from app.plugins.drawing.image import colour_of, draw
from tasks.object_detection import DetectedObject, PosedObject

BLACK = np.zeros((60, 80, 3), np.uint8)
BOX = ("cat", 0.9, 20.0, 20.0, 70.0, 55.0)


def test_keypoints_are_dots_and_hidden_ones_are_left_out() -> None:
    posed = draw(BLACK, [PosedObject(*BOX, keypoints=[[40, 30, 0.9], [55, 45, 0.1]])], "box")
    assert tuple(posed[30, 40]) == colour_of("cat")
    assert np.array_equal(posed[40:50, 50:60], BLACK[40:50, 50:60])
    without_visibility = draw(BLACK, [PosedObject(*BOX, keypoints=[[55, 45]])], "box")
    assert tuple(without_visibility[45, 55]) == colour_of("cat")


def test_lines_are_a_cell_thick_and_names_left_out_for_narrow_terminals() -> None:
    drawn = draw(BLACK, [DetectedObject(*BOX)], "box", width=16)
    colours = {tuple(colour) for colour in drawn.reshape(-1, 3).tolist()}
    assert all(drawn[y, 45].any() for y in range(18, 22))
    # Only the colour of the label and its blends with black: no ink of names.
    assert max(colours) <= colour_of("cat")
    assert not drawn[:16].any()
