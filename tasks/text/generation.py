"""Sampling parameters of text generation."""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from tasks.inference.error import ErrorKind, InferenceError, invalid
from tasks.inference.limits import Limits
from tasks.inference.request import Fraction, Positive, TextList
from tasks.text.conversation import Message

_MAX_STOPS = 4
_MAX_STOP_LENGTH = 1000


class SamplingParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling parameters.

    Attributes:
        max_new_tokens: maximum number of generated tokens in an answer.
        temperature: 0 selects the most likely token; higher values sample more randomly.
        top_p: sample only from the most likely tokens that together reach this probability.
        top_k: sample only from this number of the most likely tokens.
        seed: seed for reproducible sampling.
        stop: up to 4 texts. The answer ends before the first of them.
        messages: a conversation to continue, whose image parts stand for the images of the input in their order.
    """

    max_new_tokens: Positive = 64
    temperature: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    top_p: Fraction = 1.0
    top_k: Positive | None = None
    seed: Annotated[int, msgspec.Meta(ge=0)] | None = None
    stop: TextList | None = None
    messages: tuple[Message, ...] | None = None


def within_limits(defaults: Mapping[str, object], limits: Limits) -> Mapping[str, object]:
    """Return a model's default parameters, with `max_new_tokens` reduced to the limit of a request."""
    default = defaults.get("max_new_tokens")
    tokens = default if isinstance(default, int) else SamplingParameters().max_new_tokens
    return {**defaults, "max_new_tokens": limits.max_new_tokens} if tokens > limits.max_new_tokens else defaults


def check_sampling(parameters: SamplingParameters, limits: Limits, path: str) -> None:
    """Reject more tokens than a request may generate, and too many or empty stop sequences.

    Raises:
        InferenceError: TOO_LARGE or INVALID_REQUEST, naming the parameter under `path`.
    """
    if parameters.max_new_tokens > limits.max_new_tokens:
        message = f"Expected at most {limits.max_new_tokens}, got {parameters.max_new_tokens}"
        raise InferenceError(ErrorKind.TOO_LARGE, message, f"{path}.max_new_tokens")
    stop = parameters.stop
    if stop is not None and (len(stop) > _MAX_STOPS or not all(0 < len(text) <= _MAX_STOP_LENGTH for text in stop)):
        message = f"Expected at most {_MAX_STOPS} texts of 1 to {_MAX_STOP_LENGTH} characters"
        raise invalid(message, f"{path}.stop")
