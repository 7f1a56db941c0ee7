"""Read JSON values and rejections, and the texts and names that checks send."""

from collections.abc import Iterable
from typing import Any, TypeGuard, TypeVar

import msgspec

from app.plugins.conformance.check import expect
from app.plugins.conformance.exchange import Exchange, ViolationError, quote

T = TypeVar("T")

UNKNOWN = "conform-unknown"
"""A name that no engine knows."""
TEXTS = ("What is in the picture?", "Which colours are there?")


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Return whether a JSON value is an array."""
    return isinstance(value, list)


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether a JSON value is an object."""
    return isinstance(value, dict)


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
    """Raise a `ViolationError` if a rejection among `exchanges` has no text in `error`."""
    for exchange in exchanges:
        reason = exchange.object().get("error") if exchange.rejected else "accepted"
        expect(isinstance(reason, str) and reason, "a text in error", exchange.body)


def flattened(data: object) -> list[object]:
    """Return the elements of nested arrays in row-major order."""
    return [element for row in data for element in flattened(row)] if is_list(data) else [data]
