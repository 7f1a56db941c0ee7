"""Generate inputs from a model's metadata and read responses, for all tensor protocols."""

import base64
import math
from collections.abc import Sequence
from typing import Any, TypeGuard, TypeVar, cast

import msgspec

from app.conformance.check import InconclusiveError, ViolationError, expect, quote
from app.conformance.client.calls import GrpcCall
from app.conformance.client.probe import Exchange
from app.conformance.sample_images import SAMPLE_IMAGES

T = TypeVar("T")

UNKNOWN = "conform-unknown"
"""A name that no engine knows."""
TEXT = "What is in the picture?"
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

    Raises:
        ViolationError: the value has another form; `expected` describes the right one.
    """
    try:
        return msgspec.convert(value, form)
    except msgspec.ValidationError as error:
        raise ViolationError(f"{where and f'{where}: '}Expected {expected}, got {quote(value)}: {error}") from None


def expect_json_object(exchange: Exchange) -> dict[str, Any]:
    """Return the JSON object of a response with status 200, or of a gRPC call with the status OK.

    Raises:
        ViolationError: the status is another one, or the body is not a JSON object.
    """
    if not isinstance(exchange, GrpcCall):
        expect_status(exchange, status=200)
    return exchange.object()


def expect_accepted(exchange: Exchange) -> dict[str, Any]:
    """Return the JSON object of the response to a request that the engine should accept.

    Raises:
        InconclusiveError: the engine rejected the request, which proves nothing.
        ViolationError: the response is neither a success nor a rejection.
    """
    if exchange.refused:
        reason = f"{exchange.code} {quote(exchange.body)}"
        raise InconclusiveError(f"The engine refuses the request, with {reason}; give a body with --request")
    return expect_json_object(exchange)


def expect_status(*exchanges: Exchange, status: int) -> None:
    """Raise a `ViolationError` if one of `exchanges` has another status."""
    for exchange in exchanges:
        if exchange.status != status:
            raise ViolationError(f"Expected status {status}, got {exchange.status} {quote(exchange.body)}")


def expect_error(exchange: Exchange, max_status: int = 499) -> None:
    """Raise a `ViolationError` if the status is not from 400 to `max_status`."""
    if not 400 <= exchange.status <= max_status:
        got = f"{exchange.status} {quote(exchange.body)}"
        raise ViolationError(f"Expected a status from 400 to {max_status}, got {got}")


def expect_content_type(exchange: Exchange, expected: str = "application/json") -> None:
    """Raise a `ViolationError` unless the Content-Type is `expected`, in any case, or with a charset."""
    content_type = exchange.headers.get("content-type", "")
    expect(content_type.partition(";")[0].strip().lower() == expected, expected, content_type)


def expect_error_texts(*exchanges: Exchange) -> None:
    """Raise a `ViolationError` if a refusal among `exchanges` has no text in `error`."""
    for exchange in exchanges:
        reason = exchange.object().get("error") if exchange.refused else "accepted"
        expect(isinstance(reason, str) and reason, "a text in error", exchange.body)


def element_count(shape: Sequence[int]) -> int:
    """Return the number of elements of a shape.

    Raises:
        InconclusiveError: the tensor has too many elements.
    """
    count = math.prod(shape)
    if count > _MAX_ELEMENTS:
        raise InconclusiveError(f"An input of {count} elements is too large to generate; give a body with --request")
    return count


def suggests_text(name: str) -> bool:
    """Return whether the name of an input suggests text instead of an image."""
    return any(word in name.lower() for word in ("text", "prompt", "question", "sentence"))


def flattened(data: object) -> list[object]:
    """Return the elements of nested arrays in row-major order."""
    if not is_list(data):
        return [data]
    if not any(isinstance(element, list) for element in data):
        return cast("list[object]", data)
    return [element for row in data for element in flattened(row)]
