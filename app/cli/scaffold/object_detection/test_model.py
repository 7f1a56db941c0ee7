"""What the model answers, as a server would have it answer."""

from pathlib import Path

import msgspec
import numpy as np

from app.assembly.in_process import InProcessModel


def test_it_finds_a_bright_rectangle() -> None:
    picture = np.zeros((48, 64, 3), np.uint8)
    picture[8:40, 10:30] = (255, 0, 0)
    model = InProcessModel(Path(__file__).parent, allow_code=True)
    (found,) = map(msgspec.structs.asdict, model.ask(picture))
    assert found == {"label": "bright region", "score": 1, "xmin": 10, "ymin": 8, "xmax": 30, "ymax": 40}
