"""Test the model as a server would run it."""

from pathlib import Path

import msgspec
import numpy as np

from charioteer import InProcessModel


def test_red_image_is_classified_as_red() -> None:
    image = np.full((48, 64, 3), (200, 30, 20), np.uint8)
    model = InProcessModel(Path(__file__).parent, allow_code=True)
    best, *others = map(msgspec.structs.asdict, model.ask(image))
    assert best == {"label": "red", "score": 0.8}
    assert [other["label"] for other in others] == ["green", "blue"]
