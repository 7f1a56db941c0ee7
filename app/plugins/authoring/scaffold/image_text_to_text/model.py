"""A starter model that answers questions about colour. Replace it with your model."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_COLOURS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1), "grey": (1, 1, 1)}


class Model:
    """Names the main colour of an image, or its size if the question asks for that."""

    def load(self) -> None:
        """Load weights from `Path(__file__).parent`. Called once, before the first image."""

    def predict(self, image: NDArray[np.uint8], prompt: str) -> Iterator[str]:
        """Yield the answer to one question about one (height, width, 3) RGB image, in chunks."""
        height, width, _ = image.shape
        if "size" in prompt.lower() or "large" in prompt.lower():
            yield f"{width} by "
            yield f"{height} pixels"
            return
        mean = image.reshape(-1, 3).mean(axis=0) + 1e-9
        # Choose the colour with the smallest angle to the mean.
        nearest = max(_COLOURS, key=lambda name: float(mean @ _COLOURS[name]) / float(np.linalg.norm(_COLOURS[name])))
        yield "mostly "
        yield nearest
