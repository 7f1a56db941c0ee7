"""The feature space for distances of images: numbers and embeddings on comparable scales."""

import numpy as np
from numpy.typing import NDArray

__all__ = ("MAX_COMPONENTS", "FeatureSpace", "deviations")

MAX_COMPONENTS = 32
_ROWS_A_COMPONENT = 16
"""Minimum number of rows for each component, to avoid overfitting."""


class FeatureSpace:
    """A feature space that is fitted to the rows of images.

    Numbers are divided by their deviation. Embeddings are reduced to their main components, each divided by
    its deviation: a component with little variation in a baseline detects new images best.

    Args:
        numbers: (n, f).
        embeddings: (n, d); d may be 0.
    """

    def __init__(self, numbers: NDArray[np.float64], embeddings: NDArray[np.float32]) -> None:
        self._mean, self._deviation = numbers.mean(axis=0), deviations(numbers)
        self._centre = embeddings.mean(axis=0, dtype=np.float64)
        scale = deviations(embeddings)
        count = min(MAX_COMPONENTS, embeddings.shape[1], max(1, len(embeddings) // _ROWS_A_COMPONENT))
        centred = (embeddings - self._centre) / scale
        values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
        strongest = np.argsort(-values)[:count]
        selected = strongest[values[strongest] > 1e-9] if len(values) else strongest
        self._component_deviations = np.sqrt(values[selected])
        self._matrix = vectors[:, selected] / self._component_deviations / scale[:, None]

    def numbers(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Standardize numbers (n, f): the fitted rows have mean 0 and deviation 1."""
        return (rows - self._mean) / self._deviation

    def embeddings(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Project embeddings to standardized components (n, components)."""
        return (rows - self._centre) @ self._matrix

    def main_components(self, rows: NDArray[np.float32], count: int) -> NDArray[np.float64]:
        """Return at most `count` first components (n, components), not divided by their deviation."""
        return self.embeddings(rows)[:, :count] * self._component_deviations[:count]

    def join(self, numbers: NDArray[np.float64], embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
        """Join numbers and embeddings with equal weight into (n, f + components)."""
        arrays = [self.numbers(numbers), self.embeddings(embeddings)]
        return np.hstack([array / max(1, array.shape[1]) ** 0.5 for array in arrays]).astype(np.float32)


def deviations(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the (d,) standard deviations of columns, and 1 for constant columns."""
    spread = rows.std(axis=0, dtype=np.float64)
    return np.where(spread > 1e-9 * np.maximum(1, np.abs(rows.mean(axis=0))), spread, 1.0)
