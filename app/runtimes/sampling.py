"""Which token comes next."""

import numpy as np
from numpy.typing import NDArray

from app.engine.interest import check_interest
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.text.generation import SamplingParameters

__all__ = ("Sampler",)


class Sampler:
    """Picks tokens for one answer: the likeliest at temperature 0, else a random one.

    Sampling narrows as Hugging Face's generation does: temperature, then top_k, then top_p.

    Args:
        parameters: how freely, and the seed; without a seed every answer is different.
    """

    def __init__(self, parameters: SamplingParameters) -> None:
        self._parameters = parameters
        self._random = np.random.default_rng(parameters.seed) if parameters.temperature > 0 else None

    def pick(self, logits: NDArray[np.float32]) -> int:
        """A token id.

        Args:
            logits: (vocabulary,), the model's scores of every token.

        Raises:
            InferenceError: MODEL_FAILED when the scores are not numbers; CANCELLED or DEADLINE_EXCEEDED when nobody
                waits for the text any more.
        """
        check_interest()
        best = int(np.argmax(logits))
        if not np.isfinite(logits[best]):
            raise InferenceError(ErrorKind.MODEL_FAILED, f"The model failed: it scores a token with {logits[best]}")
        if self._random is None:
            return best
        candidates = self._narrow(logits)
        scores = logits[candidates].astype(np.float64)
        with np.errstate(over="ignore"):
            weights = np.exp((scores - scores[0]) / self._parameters.temperature)
        return int(candidates[_draw(weights, self._parameters.top_p, self._random)])

    def _narrow(self, logits: NDArray[np.float32]) -> NDArray[np.intp]:
        """Token ids, the likeliest first."""
        count = self._parameters.top_k
        if count is None or count >= len(logits):
            return np.argsort(np.negative(logits), kind="stable")
        likeliest = np.argpartition(np.negative(logits), count - 1)[:count]
        return likeliest[np.argsort(np.negative(logits[likeliest]), kind="stable")]


def _draw(weights: NDArray[np.float64], top_p: float, random: np.random.Generator) -> int:
    """The index of one of the descending `weights`, by chance, from those that make up `top_p` of their sum."""
    reached = np.cumsum(weights)
    kept = min(int(np.count_nonzero(reached < top_p * reached[-1])) + 1, len(weights))
    drawn = random.random() * reached[kept - 1]
    return min(int(np.count_nonzero(reached[:kept] <= drawn)), kept - 1)
