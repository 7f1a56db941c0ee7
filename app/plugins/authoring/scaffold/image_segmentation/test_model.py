"""Test the model as a server would run it."""

from pathlib import Path

import msgspec
import numpy as np

from charioteer import InProcessModel


def test_bright_rectangle_is_outlined() -> None:
    image = np.zeros((48, 64, 3), np.uint8)
    image[8:40, 10:30] = (255, 0, 0)
    model = InProcessModel(Path(__file__).parent, allow_code=True)
    (segment,) = map(msgspec.to_builtins, model.ask(image))
    assert (segment["label"], segment["score"]) == ("bright region", 1)
    (outline,) = segment["contour"]
    assert {(point["x"], point["y"]) for point in outline} == {(10, 8), (10, 39), (29, 39), (29, 8)}
