"""Generate inputs from a model's metadata and read responses, for all tensor protocols."""

import base64
import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard, TypeVar

import msgspec

from app.plugins.conformance.check import expect
from app.plugins.conformance.exchange import Exchange, InconclusiveError, ViolationError, quote
from app.plugins.conformance.sample_images import SAMPLE_IMAGES

T = TypeVar("T")

UNKNOWN = "conform-unknown"
"""A name that no engine knows."""
TEXTS = ("What is in the picture?", "Which colours are there?")
_MAX_ELEMENTS = 4_000_000
ENCODED_IMAGES = tuple(base64.b64encode(image.data).decode() for image in SAMPLE_IMAGES)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Return whether a JSON value is an array."""
    return isinstance(value, list)


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether a JSON value is an object."""
    return isinstance(value, dict)


def has_fields(value: object, **kinds: type) -> TypeGuard[dict[str, Any]]:
    """Return whether a JSON value is an object whose fields have the types `kinds`."""
    return is_object(value) and all(isinstance(value.get(name), kind) for name, kind in kinds.items())


def expect_form(value: object, form: type[T], expected: str, where: str = "") -> T:
    """Return a JSON value as the type `form`, such as a list of strings or a `msgspec.Struct`.

    Raise ViolationError if the value has another form; `expected` describes the right one.
    """
    try:
        return msgspec.convert(value, form)
    except msgspec.ValidationError as error:
        raise ViolationError(f"{where and f'{where}: '}Expected {expected}, got {quote(value)}: {error}") from None


def expect_statuses(exchanges: Iterable[Exchange], *codes: int | str) -> None:
    """Raise a `ViolationError` unless the status of each of `exchanges` is one of `codes`."""
    for exchange in exchanges:
        exchange.expect_status(*codes)


def expect_error_texts(*exchanges: Exchange) -> None:
    """Raise a `ViolationError` if a refusal among `exchanges` has no text in `error`."""
    for exchange in exchanges:
        reason = exchange.object().get("error") if exchange.rejected else "accepted"
        expect(isinstance(reason, str) and reason, "a text in error", exchange.body)


def element_count(shape: Sequence[int]) -> int:
    """Return the number of elements of a shape. Raise InconclusiveError if the tensor has too many elements."""
    count = math.prod(shape)
    if count > _MAX_ELEMENTS:
        raise InconclusiveError(f"An input of {count} elements is too large to generate; give a body with --request")
    return count


def suggests_text(name: str) -> bool:
    """Return whether the name of an input suggests text instead of an image."""
    return any(word in name.lower() for word in ("text", "prompt", "question", "sentence"))


def flattened(data: object) -> list[object]:
    """Return the elements of nested arrays in row-major order."""
    return [element for row in data for element in flattened(row)] if is_list(data) else [data]
