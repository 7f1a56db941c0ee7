"""Test the model as a server would run it."""

import math
from pathlib import Path

import cv2
import msgspec
import numpy as np

from charioteer import InProcessModel


def test_rotated_rectangle_is_detected() -> None:
    image = np.zeros((100, 200, 3), np.uint8)
    corners = cv2.boxPoints(((80, 50), (60, 20), 30))
    cv2.fillPoly(image, [np.rint(corners).astype(np.int32)], (0, 255, 0))
    model = InProcessModel(Path(__file__).parent, allow_code=True)
    (box,) = map(msgspec.structs.asdict, model.ask(image))
    assert abs(box["cx"] * 200 - 80) < 1
    assert abs(box["cy"] * 100 - 50) < 1
    # A box rotated by a right angle with its sides swapped is the same box.
    assert abs(math.sin(4 * (box["r"] - math.radians(30)) / 2)) < 0.1
