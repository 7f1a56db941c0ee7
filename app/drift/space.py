"""The space in which images are near or far: numbers and embeddings, on scales that can be compared."""

import numpy as np
from numpy.typing import NDArray

__all__ = ("MOST_COMPONENTS", "Space", "deviations")

MOST_COMPONENTS = 32
_ROWS_A_COMPONENT = 16
"""With fewer rows for each, the components would fit the rows they were made of better than any others."""


class Space:
    """Made of the rows of images.

    Numbers are divided by their deviation. Of embeddings the principal components that vary most are taken, each
    divided by its deviation: what hardly varies in a baseline tells best what is new.

    Args:
        numbers: (n, f).
        embeddings: (n, d); d may be 0.
    """

    def __init__(self, numbers: NDArray[np.float64], embeddings: NDArray[np.float32]) -> None:
        self._mean, self._deviation = numbers.mean(axis=0), deviations(numbers)
        self._centre = embeddings.mean(axis=0, dtype=np.float64)
        scale = deviations(embeddings)
        count = min(MOST_COMPONENTS, embeddings.shape[1], max(1, len(embeddings) // _ROWS_A_COMPONENT))
        centred = (embeddings - self._centre) / scale
        values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
        strongest = np.argsort(-values)[:count]
        kept = strongest[values[strongest] > 1e-9] if len(values) else strongest
        self._widths = np.sqrt(values[kept])
        self._matrix = vectors[:, kept] / self._widths / scale[:, None]

    def numbers(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n, f) with mean 0 and deviation 1 in the rows that the space was made of."""
        return (rows - self._mean) / self._deviation

    def embeddings(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """(n, components) likewise."""
        return (rows - self._centre) @ self._matrix

    def widest(self, rows: NDArray[np.float32], most: int) -> NDArray[np.float64]:
        """(n, at most `most`) the first components, not divided by their deviation."""
        return self.embeddings(rows)[:, :most] * self._widths[:most]

    def joined(self, numbers: NDArray[np.float64], embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, f + components), numbers and embeddings of equal weight."""
        parts = [self.numbers(numbers), self.embeddings(embeddings)]
        return np.hstack([each / max(1, each.shape[1]) ** 0.5 for each in parts]).astype(np.float32)


def deviations(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """(d,) standard deviations of columns. What never varies has 1, as if a step of 1 were usual."""
    spread = rows.std(axis=0, dtype=np.float64)
    return np.where(spread > 1e-9 * np.maximum(1, np.abs(rows.mean(axis=0))), spread, 1.0)
