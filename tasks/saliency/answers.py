"""Explain the answer of a model that generates text, by the likelihood of the answer for changed inputs."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.inference.error import invalid
from tasks.inference.response import Prediction, Record

__all__ = ("AnswersToExplain", "answers_to_explain")


class AnswersToExplain(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The K answers of one input.

    Attributes:
        labels: the answers.
        prediction: what the model returned, with the tokens of the answers.
        filtered: the prediction after `postprocess`.
        scores: (K,) log-likelihood of each answer for the original input, in nats; 0 while it is not known.
    """

    labels: Sequence[str]
    prediction: Prediction
    filtered: Prediction
    scores: NDArray[np.float64]

    def records(self) -> Sequence[Record]:
        """Return the records of the answers."""
        return self.filtered.records()


def answers_to_explain(
    labels: Sequence[str], prediction: Prediction, filtered: Prediction, label: str | None
) -> AnswersToExplain:
    """Return all answers of one input.

    Raises:
        InferenceError: INVALID_REQUEST, with the path ``label``, if one is requested.
    """
    if label is not None:
        raise invalid("Expected none: the answers of this model are texts, not classes", "label")
    return AnswersToExplain(labels=labels, prediction=prediction, filtered=filtered, scores=np.zeros(len(labels)))
