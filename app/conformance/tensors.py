"""Generate inputs from a model's metadata and read responses, for all tensor protocols."""

import base64
import math
from collections.abc import Sequence
from typing import Any, TypeGuard, cast

from app.conformance.check import InconclusiveError, ViolationError, expect, quote
from app.conformance.client.probe import Exchange, InvalidJsonError
from app.conformance.sample_images import SAMPLE_IMAGES

DATATYPES = (
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16", "FP32", "FP64",
    "BYTES",
)  # fmt: skip
"""The datatypes of V2's table, and BF16, which its text and its servers use."""
TEXT = "What is in the picture?"
_MAX_ELEMENTS = 4_000_000
ENCODED_IMAGES = tuple(base64.b64encode(image.data).decode() for image in SAMPLE_IMAGES)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Return whether a JSON value is an array."""
    return isinstance(value, list)


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether a JSON value is an object."""
    return isinstance(value, dict)


def expect_json_object(exchange: Exchange) -> dict[str, Any]:
    """Return the JSON object of a response with status 200.

    Raises:
        ViolationError: the status is not 200, or the body is not a JSON object.
    """
    expect_status(exchange, 200)
    try:
        return exchange.object()
    except InvalidJsonError as error:
        raise ViolationError(str(error)) from None


def expect_accepted(exchange: Exchange) -> dict[str, Any]:
    """Return the JSON object of the response to a generated request.

    Raises:
        InconclusiveError: the engine rejected the generated request, which proves nothing.
        ViolationError: the response is neither a success nor a rejection.
    """
    if exchange.refused:
        reason = f"{exchange.status} {quote(exchange.body)}"
        raise InconclusiveError(f"The engine refuses the generated request, with {reason}; give a body with --request")
    return expect_json_object(exchange)


def expect_status(exchange: Exchange, *statuses: int) -> None:
    """Raise a `ViolationError` if the status is not in `statuses`."""
    if exchange.status not in statuses:
        expected = " or ".join(map(str, statuses))
        raise ViolationError(f"Expected status {expected}, got {exchange.status} {quote(exchange.body)}")


def expect_error(exchange: Exchange, min_status: int = 400, max_status: int = 499) -> None:
    """Raise a `ViolationError` if the status is not from `min_status` to `max_status`."""
    if not min_status <= exchange.status <= max_status:
        raise ViolationError(
            f"Expected a status from {min_status} to {max_status}, got {exchange.status} {quote(exchange.body)}"
        )


def expect_json_type(exchange: Exchange) -> None:
    """Raise a `ViolationError` unless the Content-Type is application/json, in any case, or with a charset."""
    content_type = exchange.headers.get("content-type", "")
    expect(content_type.partition(";")[0].strip().lower() == "application/json", "application/json", content_type)


def expect_error_texts(*exchanges: Exchange) -> None:
    """Raise a `ViolationError` if a refusal among `exchanges` has no text in `error`."""
    for exchange in exchanges:
        reason = exchange.object().get("error") if exchange.refused else "accepted"
        expect(isinstance(reason, str) and reason, "a text in error", exchange.body)


def generate_data(datatype: str, shape: Sequence[int], name: str = "", *, image_index: int = 0) -> list[object]:
    """Generate flat data for a tensor: zeros, or for BYTES an image in base64, or text if the name suggests text.

    Args:
        datatype: a V2 datatype.
        shape: without unknown lengths.
        name: the name of the tensor.
        image_index: the index of one of the probe's own images.

    Raises:
        InconclusiveError: the tensor has too many elements.
    """
    count = element_count(shape)
    if datatype == "BYTES":
        return [TEXT if suggests_text(name) else ENCODED_IMAGES[image_index]] * count
    return [False if datatype == "BOOL" else 0] * count


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
