"""Logits of classes to classifications, as Hugging Face's pipelines read them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.image_classification import Classification

__all__ = ("classifications", "probabilities")


def probabilities(logits: Any, config: Any) -> NDArray[np.float32]:
    """(n, classes) scores 0..1 of (n, classes) logits: each for itself where several may hold, or there is only one.

    A regression has no classes, and its numbers are given as they are.
    """
    kind = getattr(config, "problem_type", None)
    numbers = logits.float()
    if kind == "regression":
        return numbers.cpu().numpy()
    if kind == "multi_label_classification" or numbers.shape[-1] == 1:
        return numbers.sigmoid().cpu().numpy()
    return numbers.softmax(-1).cpu().numpy()


def classifications(logits: Any, config: Any, labels: Sequence[str]) -> list[Classification]:
    """One for each of n rows of (n, classes) logits."""
    return [Classification(labels=labels, scores=row) for row in probabilities(logits, config)]
