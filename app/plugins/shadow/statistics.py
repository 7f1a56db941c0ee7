"""Statistics of pairs: two versions on the same images."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.plugins.evaluation.metrics.intervals import Estimate, wilson

_LEVEL = 0.05
_MAX_IMAGES = 1 << 30

Floats = NDArray[np.float64]


class PairedScores(msgspec.Struct, frozen=True, kw_only=True):
    """F1 of two versions on the same images; of classes it is the accuracy."""

    images: int
    objects: float  # mean number of objects in an image, at least 1
    champion: float
    shadow: float  # F1 of the shadow version
    sizes: tuple[float, float]  # number of independent values in an image, for each version
    deviations: tuple[float, float]  # deviation of the value of an image, for each version
    covariance: float  # of the values of an image

    def difference(self, images: int | None = None) -> Estimate:
        """Return shadow minus champion with its interval, as if `images` images had the same scores.

        The interval is Newcombe's for paired proportions (1998, method 10), with the linearized F1 of an image as its
        value. Each end is moved by the weight of one object, because scores change in steps.
        """
        count = self.images if images is None else images
        first, second = (
            wilson(score, size * count) for score, size in zip((self.champion, self.shadow), self.sizes, strict=True)
        )
        step = 1 / (count * self.objects)
        covariance = max(0.0, self.covariance - step / 2) if self.covariance > 0 else self.covariance
        deviations = math.prod(self.deviations)
        correlation = covariance / deviations if deviations else 0.0
        value = second.value - first.value
        below = _distance(second.value - second.low, first.high - first.value, correlation) + step
        above = _distance(second.high - second.value, first.value - first.low, correlation) + step
        return Estimate(value, max(-1.0, value - below), min(1.0, value + above))


def _distance(first: float, second: float, correlation: float) -> float:
    return math.sqrt(max(0.0, first**2 - 2 * correlation * first * second + second**2))


def pair(champion: Floats, shadow: Floats) -> PairedScores:
    """Return the scores of (N, 3) right, wrong and missed of each of N images, at least one."""
    images, objects = len(champion), float((champion + shadow).sum(axis=0) @ (2.0, 1.0, 1.0)) / 4
    (first, size, values), (second, other_size, other_values) = _score(champion), _score(shadow)
    return PairedScores(
        images=images,
        objects=max(1.0, objects / images),
        champion=first,
        shadow=second,
        sizes=(size, other_size),
        deviations=(float(values.std()), float(other_values.std())),
        covariance=float((values * other_values).mean()),
    )


def _score(counts: Floats) -> tuple[float, float, Floats]:
    """Return F1, the number of independent values in an image, and the (N,) linearized F1 of each image less the mean.

    F1 is 1 where there is nothing to find and nothing found.
    """
    weights = counts @ (2.0, 1.0, 1.0)
    total = float(weights.sum())
    if not total:
        return 1.0, 1.0, np.zeros(len(counts))
    f1 = 2 * float(counts[:, 0].sum()) / total
    values = (2 * counts[:, 0] - f1 * weights) * len(counts) / total
    variance = float(np.square(values).mean())
    # Without a mistake, whether the objects of an image depend on each other is unknown: then an image counts once.
    size = f1 * (1 - f1) / variance if variance > 1e-12 else 1.0
    return f1, min(size, max(1.0, total / 2 / len(counts))), values


def needed_images(scores: PairedScores, margin: float) -> int:
    """Return about how many images narrow the half interval of the difference to `margin`; at least those compared."""

    def is_narrow(images: int) -> bool:
        interval = scores.difference(images)
        return interval.high - interval.low <= 2 * margin

    return scores.images + bisect_left(range(scores.images, _MAX_IMAGES), True, key=is_narrow)


def losing(scores: Mapping[str, PairedScores], tolerance: float) -> Sequence[str]:
    """Return the classes that lose more than `tolerance`, at a level of 5 % over all classes (Holm)."""
    p_values = {name: _loss_p(pairs, tolerance) for name, pairs in scores.items()}
    lost: list[str] = []
    for rank, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        if p_values[name] > _LEVEL / (len(p_values) - rank):
            break
        lost.append(name)
    return lost


def _loss_p(scores: PairedScores, tolerance: float) -> float:
    """Return the one-sided p-value of a loss of at most `tolerance`, by a normal distribution."""
    first, second = scores.deviations
    variance = (first**2 + second**2 - 2 * scores.covariance) / scores.images
    excess = scores.champion - scores.shadow - tolerance
    if variance <= 0:
        return float(excess <= 0)
    return math.erfc(excess / math.sqrt(2 * variance)) / 2
