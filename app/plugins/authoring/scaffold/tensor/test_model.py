"""Test the model as a server would run it."""

from pathlib import Path

import numpy as np

from charioteer import InProcessModel


def test_rows_are_standardized() -> None:
    model = InProcessModel(Path(__file__).parent, allow_code=True)
    outputs = model.run({"x": np.array([[1, 3], [10, 30]], np.float32)})
    assert outputs["y"].tolist() == [[-1, 1], [-1, 1]]
