"""Sample the next token."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from app.engine.cancellation import raise_if_cancelled
from tasks.inference.error import ErrorKind, InferenceError
from tasks.text.generation import SamplingParameters


class TokenPicker(Protocol):
    """Chooses the tokens of one answer, in order."""

    def pick(self, logits: NDArray[np.float32], /) -> int:
        """Return the id of the next token; `logits` are the (vocabulary,) scores of all tokens."""
        ...


class ForcedTokens:
    """Makes a model generate a known answer, and adds up the log-likelihood of the picked tokens, in nats."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._remaining = iter(tokens)
        self.log_likelihood = 0.0

    def pick(self, logits: NDArray[np.float32], /) -> int:
        """Return the next token of the answer.

        Raises:
            InferenceError: CANCELLED or DEADLINE_EXCEEDED if the request has ended.
        """
        raise_if_cancelled()
        token = next(self._remaining)
        scores = logits.astype(np.float64)
        highest = scores.max()
        self.log_likelihood += float(scores[token] - highest - np.log(np.exp(scores - highest).sum()))
        return token


class Sampler:
    """Samples the tokens of one answer. Temperature 0 selects the token with the highest score.

    The order is that of Hugging Face: temperature, then top_k, then top_p. Without a seed every answer is different.
    """

    def __init__(self, parameters: SamplingParameters) -> None:
        self._parameters = parameters
        self._random = np.random.default_rng(parameters.seed) if parameters.temperature > 0 else None

    def pick(self, logits: NDArray[np.float32], /) -> int:
        """Return the id of the next token.

        Raises:
            InferenceError: MODEL_FAILED if the highest score is not finite; CANCELLED or DEADLINE_EXCEEDED if the
                request has ended.
        """
        raise_if_cancelled()
        best = int(np.argmax(logits))
        if not np.isfinite(logits[best]):
            raise InferenceError(ErrorKind.MODEL_FAILED, f"The model failed: the score of a token is {logits[best]}")
        if self._random is None:
            return best
        candidates = self._top_candidates(logits)
        scores = logits[candidates].astype(np.float64)
        with np.errstate(over="ignore"):
            weights = np.exp((scores - scores[0]) / self._parameters.temperature)
        return int(candidates[_draw(weights, self._parameters.top_p, self._random)])

    def _top_candidates(self, logits: NDArray[np.float32]) -> NDArray[np.intp]:
        """Return the candidate token ids, highest score first."""
        count = self._parameters.top_k
        if count is None or count >= len(logits):
            return np.argsort(np.negative(logits), kind="stable")
        highest = np.argpartition(np.negative(logits), count - 1)[:count]
        return highest[np.argsort(np.negative(logits[highest]), kind="stable")]


# The quotes defer the import of NumPy's generators, which few servers need.
def _draw(weights: NDArray[np.float64], top_p: float, random: "np.random.Generator") -> int:
    """Draw an index of the descending `weights` from the first ones that sum to `top_p` of the total."""
    cumulative = np.cumsum(weights)
    nucleus_size = min(int(np.count_nonzero(cumulative < top_p * cumulative[-1])) + 1, len(weights))
    drawn = random.random() * cumulative[nucleus_size - 1]
    return min(int(np.count_nonzero(cumulative[:nucleus_size] <= drawn)), nucleus_size - 1)
