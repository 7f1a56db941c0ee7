"""What the model answers, as a server would have it answer."""

import math
from pathlib import Path

import cv2
import msgspec
import numpy as np

from app.assembly.in_process import InProcessModel


def test_it_finds_a_turned_rectangle() -> None:
    picture = np.zeros((100, 200, 3), np.uint8)
    corners = cv2.boxPoints(((80, 50), (60, 20), 30))
    cv2.fillPoly(picture, [np.rint(corners).astype(np.int32)], (0, 255, 0))
    model = InProcessModel(Path(__file__).parent, allow_code=True)
    (found,) = map(msgspec.structs.asdict, model.ask(picture))
    assert abs(found["cx"] * 200 - 80) < 1
    assert abs(found["cy"] * 100 - 50) < 1
    # A box turned by a right angle, its sides exchanged, is the same box.
    assert abs(math.sin(4 * (found["r"] - math.radians(30)) / 2)) < 0.1
