"""Kinds of images: those of one camera or place look alike, and are told apart without knowing its name.

Both samples are divided together, and not by which of them an image is of: what is found within kinds is as right by
itself as what is found without them.
"""

import numpy as np
from numpy.typing import NDArray

from app.drift.permutation import squared_distances
from app.drift.space import deviations

__all__ = ("kinds", "within_kinds")

_MOST_KINDS = 6
_IMAGES_A_KIND = 50
_STEPS = 15
_SEED = 0


def kinds(rows: NDArray[np.float64]) -> NDArray[np.intp]:
    """(n,) which kind each image is of, by k-means of (n, components), the widest of which count the most.

    All are of one kind where there are no components, or few images.
    """
    count = min(_MOST_KINDS, len(rows) // _IMAGES_A_KIND)
    if count < 2 or not rows.shape[1]:
        return np.zeros(len(rows), np.intp)
    places = rows.astype(np.float32)
    centres = _spread(places, count)
    nearest = np.zeros(len(places), np.intp)
    for _ in range(_STEPS):
        nearest = squared_distances(places, centres).argmin(axis=1)
        centres = np.stack([
            places[nearest == place].mean(axis=0) if (nearest == place).any() else centre
            for place, centre in enumerate(centres)
        ])  # fmt: skip
    return nearest


def within_kinds(numbers: NDArray[np.float64], kind: NDArray[np.intp]) -> NDArray[np.float64]:
    """(n, d) how many deviations of its kind each number is from the mean of its kind."""
    found = np.zeros_like(numbers)
    for each in np.unique(kind):
        mine = numbers[kind == each]
        found[kind == each] = (mine - mine.mean(axis=0)) / deviations(mine)
    return found


def _spread(rows: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """(count, d) rows that are far from one another, as k-means++ draws them."""
    rng = np.random.default_rng(_SEED)
    chosen = [int(rng.integers(len(rows)))]
    for _ in range(count - 1):
        weights = squared_distances(rows, rows[chosen]).min(axis=1).astype(np.float64)
        chosen.append(int(rng.choice(len(rows), p=weights / weights.sum())) if weights.any() else chosen[0])
    return rows[chosen]
