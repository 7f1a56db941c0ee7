"""Filter predictions by score, label and number."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.inference.error import ErrorKind, InferenceError, invalid
from tasks.inference.limits import check_unicode
from tasks.inference.parameters import Fraction, Positive, TextList

_PARTITION_FACTOR = 4
_MAX_CANDIDATES = 256
_MAX_CANDIDATE_LENGTH = 256

SCORE_DECIMALS = 7
"""Decimals of scores: the precision of a 32-bit float in 0..1, without the noise of its conversion to 64 bits."""


class SelectionParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of all vision tasks.

    Attributes:
        action: the action; each task documents its actions and ignores others.
        score_threshold: predictions with a lower score are left out.
        top_k: maximum number of predictions; those with the highest scores are kept.
        labels: keep only these classes; by default all.
        candidate_labels: the classes to detect, for an open-vocabulary model.
    """

    action: str | None = None
    score_threshold: Fraction = 0.0
    top_k: Positive | None = None
    labels: TextList | None = None
    candidate_labels: TextList | None = None


ParametersT = TypeVar("ParametersT", bound=SelectionParameters)


def reject_candidate_labels(parameters: ParametersT, path: str) -> ParametersT:
    """Return the parameters, whose path is `path`; reject `candidate_labels` for a model with fixed classes.

    Raises:
        InferenceError: INVALID_REQUEST if they are given.
    """
    if parameters.candidate_labels is not None:
        message = "Expected none: the model has classes of its own; choose among them with labels"
        raise invalid(message, f"{path}.candidate_labels")
    return parameters


def check_candidate_labels(parameters: SelectionParameters, path: str) -> None:
    """Check the `candidate_labels` for an open-vocabulary model; `path` is that of the parameters.

    Raises:
        InferenceError: INVALID_REQUEST for missing or empty labels, or labels that are not Unicode; TOO_LARGE for too
            many or too long labels.
    """
    labels, path = parameters.candidate_labels, f"{path}.candidate_labels"
    if not labels or not all(label.strip() for label in labels):
        raise invalid("Expected the names of the classes to look for, got none, or an empty one", path)
    if len(labels) > _MAX_CANDIDATES or max(map(len, labels)) > _MAX_CANDIDATE_LENGTH:
        message = f"Expected at most {_MAX_CANDIDATES} labels of at most {_MAX_CANDIDATE_LENGTH} characters each"
        raise InferenceError(ErrorKind.TOO_LARGE, message, path)
    for index, label in enumerate(labels):
        check_unicode(label, f"{path}[{index}]")


def select(scores: NDArray[np.float32], labels: Sequence[str], parameters: SelectionParameters) -> list[int]:
    """Return the indices of the selected predictions by descending score, in a stable order; only finite scores."""
    selected = ((scores >= parameters.score_threshold) & np.isfinite(scores)).nonzero()[0]
    if parameters.labels is not None:
        allowed = frozenset(parameters.labels)
        selected = selected[
            np.fromiter((labels[index] in allowed for index in selected.tolist()), np.bool_, len(selected))
        ]
    top_k = parameters.top_k
    if top_k is not None and len(selected) > _PARTITION_FACTOR * top_k:
        # For five of a thousand classes, partitioning is faster than sorting.
        candidates = scores[selected]
        selected = selected[candidates >= np.partition(candidates, -top_k)[-top_k]]
    order = (-scores[selected]).argsort(kind="stable")
    return selected[order[:top_k]].tolist()
