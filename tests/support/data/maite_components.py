"""A dataset and a metric of MAITE."""

from collections.abc import Sequence
from typing import Any

import numpy as np


class Images:
    """Three images of noise; their targets are what `model` finds in them."""

    def __init__(self, model: Any) -> None:
        self.metadata = {"id": "noise", "index2label": model.metadata["index2label"]}
        self._images = list(np.random.default_rng(0).integers(0, 256, (3, 3, 33, 47), np.uint8))
        self._targets = model(self._images)

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int, /) -> Any:
        return self._images[index], self._targets[index], {"id": index}


class Count:
    """Count the images whose prediction equals the target."""

    def __init__(self) -> None:
        self.metadata = {"id": "count"}
        self._count = 0

    def reset(self) -> None:
        self._count = 0

    def update(self, predictions: Sequence[Any], targets: Sequence[Any], metadatas: Sequence[Any], /) -> None:
        for prediction, target, metadata in zip(predictions, targets, metadatas, strict=True):
            found, expected = (np.asarray(getattr(one, "scores", one)) for one in (prediction, target))
            self._count += bool("id" in metadata and found.size and np.array_equal(found, expected))

    def compute(self) -> dict[str, int]:
        return {"images": self._count}
