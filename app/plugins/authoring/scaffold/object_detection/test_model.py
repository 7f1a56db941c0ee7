"""Test the model as a server would run it."""

from pathlib import Path

import msgspec
import numpy as np

from charioteer import InProcessModel


def test_bright_rectangle_is_detected() -> None:
    image = np.zeros((48, 64, 3), np.uint8)
    image[8:40, 10:30] = (255, 0, 0)
    model = InProcessModel(Path(__file__).parent, allow_code=True)
    (detection,) = map(msgspec.structs.asdict, model.ask(image))
    assert detection == {"label": "bright region", "score": 1, "xmin": 10, "ymin": 8, "xmax": 30, "ymax": 40}
