"""Parse JSON as leniently as the real server, which accepts NaN and ignores the data after the first value."""

import json
import math
from typing import Any, cast

import msgspec

from app.wire.json_limits import check_json
from tasks.inference.error import invalid, quote_value
from tasks.inference.limits import Limits

_MAX_DIGITS = 400
"""Longer integers exceed every floating-point number."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_object(body: bytes, limits: Limits | None = None) -> dict[str, object]:
    """Parse the JSON object at the start of `body`. The rest is ignored, but counts for the `limits`.

    Raises:
        InferenceError: INVALID_REQUEST; as `check_json`.
    """
    if limits is not None:
        check_json(body, limits)
    try:
        document: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = _read_leniently(body)
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {quote_value(document)} Is not object")
    return cast("dict[str, object]", document)


def _read_leniently(body: bytes) -> object:
    text = body.removeprefix(_BYTE_ORDER_MARK).decode(errors="surrogateescape").lstrip(" \t\r\n")
    try:
        value, _ = _DECODER.raw_decode(text)
        # Half of a surrogate pair, and bytes that are not UTF-8, are errors within the value only.
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise invalid(f"JSON Parse error: {error}") from None
    return value


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("Number too big to be stored in double.")
    return number


def _integer(text: str) -> int | float:
    return int(text) if len(text) <= _MAX_DIGITS else _finite(text)


_DECODER = json.JSONDecoder(parse_float=_finite, parse_int=_integer)
