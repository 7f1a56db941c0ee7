"""Convert class logits to classifications as Hugging Face's pipelines do."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.image_classification import Classification

__all__ = ("classifications", "probabilities")


def probabilities(logits: Any, config: Any) -> NDArray[np.float32]:
    """Convert (n, classes) logits to (n, classes) scores.

    Use the sigmoid for multi-label models and models with one class, and the softmax for others. Return the outputs of
    a regression unchanged.
    """
    problem_type = getattr(config, "problem_type", None)
    numbers = logits.float()
    if problem_type == "regression":
        return numbers.cpu().numpy()
    if problem_type == "multi_label_classification" or numbers.shape[-1] == 1:
        return numbers.sigmoid().cpu().numpy()
    return numbers.softmax(-1).cpu().numpy()


def classifications(logits: Any, config: Any, labels: Sequence[str]) -> list[Classification]:
    """Convert (n, classes) logits to n classifications."""
    return [Classification(labels=labels, scores=row) for row in probabilities(logits, config)]
