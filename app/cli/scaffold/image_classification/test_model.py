"""What the model answers, as a server would have it answer."""

from pathlib import Path

import msgspec
import numpy as np

from app.assembly.in_process import InProcessModel


def test_a_red_picture_is_red() -> None:
    picture = np.full((48, 64, 3), (200, 30, 20), np.uint8)
    model = InProcessModel(Path(__file__).parent, allow_code=True)
    best, *others = map(msgspec.structs.asdict, model.ask(picture))
    assert best == {"label": "red", "score": 0.8}
    assert [other["label"] for other in others] == ["green", "blue"]
