"""How a model generates text, whatever it was asked."""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.limits import Limits
from tasks.exchange.parameters import Fraction, Positive

__all__ = ("SamplingParameters", "check_new_tokens", "within_limits")


class SamplingParameters(msgspec.Struct, frozen=True, kw_only=True):
    """How freely, and how much.

    Attributes:
        max_new_tokens: an answer ends after so many tokens at the latest.
        temperature: 0 takes the likeliest token each time; above it, tokens are sampled, the more freely the higher.
        top_p: when sampling, only from the likeliest tokens that together reach this probability.
        top_k: when sampling, only from so many of the likeliest tokens.
        seed: makes sampling repeatable.
    """

    max_new_tokens: Positive = 64
    temperature: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    top_p: Fraction = 1.0
    top_k: Positive | None = None
    seed: Annotated[int, msgspec.Meta(ge=0)] | None = None


def within_limits(defaults: Mapping[str, object], limits: Limits) -> Mapping[str, object]:
    """A model's own parameters, its number of tokens no greater than a request may ask for: nobody did."""
    usual = defaults.get("max_new_tokens")
    most = usual if isinstance(usual, int) else SamplingParameters().max_new_tokens
    return {**defaults, "max_new_tokens": limits.max_new_tokens} if most > limits.max_new_tokens else defaults


def check_new_tokens(parameters: SamplingParameters, limits: Limits, path: str) -> None:
    """Refuse to generate more than a request may ask for.

    Raises:
        InferenceError: TOO_LARGE, naming `path`.
    """
    if parameters.max_new_tokens > limits.max_new_tokens:
        message = f"Expected at most {limits.max_new_tokens}, got {parameters.max_new_tokens}"
        raise InferenceError(ErrorKind.TOO_LARGE, message, path)
