"""Which of a model's findings the sender wants: threshold, labels, how many, best first."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.exchange.error import ErrorKind, InferenceError, invalid
from tasks.exchange.parameters import Fraction, Positive, TextList
from tasks.text.unicode import check_unicode

__all__ = ("SCORE_DECIMALS", "SelectionParameters", "check_own_classes", "check_told_classes", "select")

_MANY = 4
_MOST_CANDIDATES = 256
_LONGEST_CANDIDATE = 256

SCORE_DECIMALS = 7
"""Digits kept of a score: all that a 32-bit float in 0..1 has, without the noise of its widening to 64 bits."""


class SelectionParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters every vision task understands.

    Attributes:
        action: what to do; each task names the actions it knows and ignores any other.
        score_threshold: findings that score lower are left out.
        top_k: at most so many findings, the best ones.
        labels: only these classes; all when absent.
        candidate_labels: the classes themselves, for a model that is told them with each request.
    """

    action: str | None = None
    score_threshold: Fraction = 0.0
    top_k: Positive | None = None
    labels: TextList | None = None
    candidate_labels: TextList | None = None


def check_own_classes(parameters: SelectionParameters, path: str) -> None:
    """Check the parameters that stand at `path`, of a model that has classes of its own.

    Raises:
        InferenceError: INVALID_REQUEST when they tell it others.
    """
    if parameters.candidate_labels is not None:
        message = "Expected none: the model has classes of its own; choose among them with labels"
        raise invalid(message, f"{path}.candidate_labels")


def check_told_classes(parameters: SelectionParameters, path: str) -> None:
    """Check the parameters that stand at `path`, of a model that is told its classes with each request.

    Raises:
        InferenceError: INVALID_REQUEST when they tell it none, an empty one, or one that is not Unicode; TOO_LARGE
            for more, or longer ones, than a request may carry.
    """
    labels, path = parameters.candidate_labels, f"{path}.candidate_labels"
    if not labels or not all(label.strip() for label in labels):
        raise invalid("Expected the names of the classes to look for, got none, or an empty one", path)
    if len(labels) > _MOST_CANDIDATES or max(map(len, labels)) > _LONGEST_CANDIDATE:
        message = f"Expected at most {_MOST_CANDIDATES} labels of at most {_LONGEST_CANDIDATE} characters each"
        raise InferenceError(ErrorKind.TOO_LARGE, message, path)
    for index, label in enumerate(labels):
        check_unicode(label, f"{path}[{index}]")


def select(scores: NDArray[np.float32], labels: Sequence[str], wanted: SelectionParameters) -> list[int]:
    """Indices of the findings wanted, best score first, equal scores in their own order; only finite scores."""
    chosen = np.flatnonzero((scores >= wanted.score_threshold) & np.isfinite(scores))
    if wanted.labels is not None:
        allowed = frozenset(wanted.labels)
        chosen = chosen[np.fromiter((labels[index] in allowed for index in chosen.tolist()), np.bool_, len(chosen))]
    most = wanted.top_k
    if most is not None and len(chosen) > _MANY * most:
        # Sorting a thousand classes for the five best costs more than finding what the fifth scores.
        kept = scores[chosen]
        chosen = chosen[kept >= np.partition(kept, -most)[-most]]
    order = np.argsort(-scores[chosen], kind="stable")
    return chosen[order[:most]].tolist()
