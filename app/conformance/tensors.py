"""What protocols of tensors have in common: inputs made up from a description, and answers looked into."""

import base64
import math
from collections.abc import Sequence
from typing import Any, TypeGuard, cast

from app.conformance.clause import FaultError, UntestedError
from app.conformance.pictures import OWN_PICTURES
from app.conformance.probe import Exchange, NotJsonError, Probe
from app.conformance.quoting import brief

__all__ = (
    "DATATYPES",
    "PICTURES",
    "TEXT", "answered", "expect_error", "expect_status", "flattened", "is_json", "is_list", "is_object", "listed_model",
    "made_up",
    "means_text", "said",
)  # fmt: skip

DATATYPES = (
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16", "FP32", "FP64",
    "BYTES",
)  # fmt: skip
"""Those of V2's table, and BF16, which its text and its servers have."""
TEXT = "What is in the picture?"
_MOST_ELEMENTS = 4_000_000
PICTURES = tuple(base64.b64encode(each.data).decode() for each in OWN_PICTURES)


def is_json(content_type: str) -> bool:
    """Whether a Content-Type is application/json, in upper or lower case, with or without a charset (RFC 9110, 8.3)."""
    return content_type.partition(";")[0].strip().lower() == "application/json"


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether a JSON value is an array."""
    return isinstance(value, list)


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether a JSON value is an object."""
    return isinstance(value, dict)


def said(exchange: Exchange) -> dict[str, Any]:
    """The object of an answer of status 200.

    Raises:
        FaultError: it is something else.
    """
    expect_status(exchange, 200)
    try:
        return exchange.object()
    except NotJsonError as error:
        raise FaultError(str(error)) from None


def answered(exchange: Exchange) -> dict[str, Any]:
    """The object of an answer; where a request that was made up is refused, nothing is known.

    Raises:
        UntestedError: it is refused.
        FaultError: it is neither answered nor refused.
    """
    if exchange.refused:
        why = f"{exchange.status} {brief(exchange.body)}"
        raise UntestedError(f"The engine refuses what was made up, with {why}; give a body with --request")
    return said(exchange)


def expect_status(exchange: Exchange, *statuses: int) -> None:
    """Raise a `FaultError` where the status is none of `statuses`."""
    if exchange.status not in statuses:
        expected = " or ".join(map(str, statuses))
        raise FaultError(f"Expected status {expected}, got {exchange.status} {brief(exchange.body)}")


def expect_error(exchange: Exchange, least: int = 400, most: int = 499) -> None:
    """Raise a `FaultError` where the status is not one of an error."""
    if not least <= exchange.status <= most:
        raise FaultError(f"Expected a status from {least} to {most}, got {exchange.status} {brief(exchange.body)}")


def listed_model(probe: Probe, *paths: str) -> str:
    """The name that was given, or the only one under `models` of what the paths say.

    Raises:
        UntestedError: there is no telling.
    """
    if probe.target.model:
        return probe.target.model
    for path in paths:
        exchange = probe.get(path)
        try:
            names: object = exchange.object().get("models") if exchange.ok else None
        except NotJsonError:
            continue
        if is_list(names) and len(names) == 1 and isinstance(names[0], str):
            return names[0]
    raise UntestedError("Which model is not known; give its name with --model")


def made_up(datatype: str, shape: Sequence[int], name: str = "", *, picture: int = 0) -> list[object]:
    """Flat data for a tensor: zeros, or a picture in base64 for BYTES, or a text where its name speaks of one.

    Args:
        datatype: as V2 calls it.
        shape: every length known.
        name: the tensor's.
        picture: which of the probe's own.
    """
    count = math.prod(shape)
    if count > _MOST_ELEMENTS:
        raise UntestedError(f"An input of {count} elements is not made up; give a body with --request")
    if datatype == "BYTES":
        return [TEXT if means_text(name) else PICTURES[picture]] * count
    return [False if datatype == "BOOL" else 0] * count


def means_text(name: str) -> bool:
    """Whether an input called so wants words rather than an image."""
    return any(word in name.lower() for word in ("text", "prompt", "question", "sentence"))


def flattened(data: object) -> list[object]:
    """The elements of nested arrays, row by row."""
    if not is_list(data):
        return [data]
    if not any(isinstance(each, list) for each in data):
        return cast("list[object]", data)
    return [element for each in data for element in flattened(each)]
