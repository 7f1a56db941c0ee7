"""Which of a model's findings the sender wants: threshold, labels, how many, best first."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.exchange.parameters import Fraction, Positive, TextList

__all__ = ("SCORE_DECIMALS", "SelectionParameters", "select")

SCORE_DECIMALS = 7
"""Digits kept of a score: all that a 32-bit float in 0..1 has, without the noise of its widening to 64 bits."""


class SelectionParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters every vision task understands.

    Attributes:
        action: what to do; each task names the actions it knows and ignores any other.
        score_threshold: findings that score lower are left out.
        top_k: at most so many findings, the best ones.
        labels: only these classes; all when absent.
    """

    action: str | None = None
    score_threshold: Fraction = 0.0
    top_k: Positive | None = None
    labels: TextList | None = None


def select(scores: NDArray[np.float32], labels: Sequence[str], wanted: SelectionParameters) -> list[int]:
    """Indices of the findings wanted, best score first, equal scores in their own order; only finite scores."""
    chosen = np.flatnonzero((scores >= wanted.score_threshold) & np.isfinite(scores))
    if wanted.labels is not None:
        allowed = frozenset(wanted.labels)
        chosen = chosen[np.fromiter((labels[index] in allowed for index in chosen.tolist()), np.bool_, len(chosen))]
    order = np.argsort(-scores[chosen], kind="stable")
    return chosen[order[: wanted.top_k]].tolist()
