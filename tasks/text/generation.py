"""Sampling parameters of text generation."""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tasks.inference.parameters import Fraction, Positive

__all__ = ("SamplingParameters", "check_new_tokens", "within_limits")


class SamplingParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling parameters.

    Attributes:
        max_new_tokens: maximum number of generated tokens in an answer.
        temperature: 0 selects the most likely token; higher values sample more randomly.
        top_p: sample only from the most likely tokens that together reach this probability.
        top_k: sample only from this number of the most likely tokens.
        seed: seed for reproducible sampling.
    """

    max_new_tokens: Positive = 64
    temperature: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    top_p: Fraction = 1.0
    top_k: Positive | None = None
    seed: Annotated[int, msgspec.Meta(ge=0)] | None = None


def within_limits(defaults: Mapping[str, object], limits: Limits) -> Mapping[str, object]:
    """Return a model's default parameters, with `max_new_tokens` reduced to the limit of a request."""
    default = defaults.get("max_new_tokens")
    tokens = default if isinstance(default, int) else SamplingParameters().max_new_tokens
    return {**defaults, "max_new_tokens": limits.max_new_tokens} if tokens > limits.max_new_tokens else defaults


def check_new_tokens(parameters: SamplingParameters, limits: Limits, path: str) -> None:
    """Reject more tokens than a request may generate.

    Raises:
        InferenceError: TOO_LARGE, naming `path`.
    """
    if parameters.max_new_tokens > limits.max_new_tokens:
        message = f"Expected at most {limits.max_new_tokens}, got {parameters.max_new_tokens}"
        raise InferenceError(ErrorKind.TOO_LARGE, message, path)
