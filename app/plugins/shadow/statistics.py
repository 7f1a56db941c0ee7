"""Statistics of pairs: two versions on the same images."""

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from app.plugins.evaluation.metrics.bootstrap import Estimate, Floats, draw_sums, estimate

_NORMAL = 1.96
_MIN_CORRECTED = 25
"""From this number of unequal pairs on, McNemar's test uses the chi-squared distribution instead of the binomial."""
_LEVEL = 0.05


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """F1 of two versions; of classes it is the accuracy."""

    champion: float
    shadow: float  # of the shadow version
    difference: Estimate  # the second minus the first


def mcnemar(only_champion: int, only_shadow: int) -> float:
    """Return the two-sided p-value of McNemar's test: exact, or with continuity correction for many unequal pairs."""
    unequal = only_champion + only_shadow
    if unequal < _MIN_CORRECTED:
        tail = sum(math.comb(unequal, count) for count in range(min(only_champion, only_shadow) + 1))
        return min(1.0, 2 * tail / 2**unequal)
    statistic = max(0, abs(only_champion - only_shadow) - 1) ** 2 / unequal
    return math.erfc(math.sqrt(statistic / 2))


def share(hits: Sequence[bool]) -> Estimate:
    """Return the share of images that are hits."""
    values = np.array(hits, np.float64)
    return estimate(float(values.mean()), draw_sums(values[:, np.newaxis])[:, 0] / len(values))


def compare(champion: Floats, shadow: Floats) -> tuple[Comparison, Floats]:
    """Compare (N, 3) right, wrong and missed of each image. Return the (DRAWS,) differences too."""
    drawn = draw_sums(np.hstack([champion, shadow]))
    draws = _f1(drawn[:, 3:]) - _f1(drawn[:, :3])
    first, second = (float(_f1(counts.sum(axis=0, keepdims=True))[0]) for counts in (champion, shadow))
    return Comparison(champion=first, shadow=second, difference=estimate(second - first, draws)), draws


def needed_images(champion: Floats, shadow: Floats, margin: float) -> int:
    """Return about how many images narrow the half interval of the difference to `margin`."""
    return math.ceil((_NORMAL / margin) ** 2 * float(np.var(_f1(shadow) - _f1(champion))))


def losing(draws: Mapping[str, Floats], tolerance: float) -> Sequence[str]:
    """Return the classes that lose more than `tolerance`, at a level of 5 % over all classes (Holm)."""
    p_values = {name: float((differences > -tolerance).mean()) for name, differences in draws.items()}
    lost: list[str] = []
    for rank, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        if p_values[name] > _LEVEL / (len(p_values) - rank):
            break
        lost.append(name)
    return lost


def _f1(counts: Floats) -> Floats:
    """Return F1 of (D, 3) right, wrong and missed; 1 where there is nothing to find and nothing found."""
    right, wrong, missed = counts.T
    denominators = 2 * right + wrong + missed
    return np.divide(2 * right, denominators, out=np.ones(len(counts)), where=denominators > 0)
