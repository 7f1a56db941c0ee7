"""Parse JSON as the real server does, with its error messages, and quote values as it does.

The real parser is RapidJSON with NaN and Infinity allowed. It stops after the first value (tensorflow/serving,
`json_tensor.cc`).
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from app.protocols.json_body import first_path, has_lone_surrogate
from app.protocols.json_limits import check_json
from tasks.inference.error import InferenceError, invalid
from tasks.inference.limits import Limits

__all__ = ("debug_text", "format_error", "read_object", "type_name")

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WHITE_SPACE = re.compile(r"[ \t\r\n]*")
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_MAX_INTEGER_DIGITS = 20
"""The real parser reads longer integers, which exceed 64 bits, as floating-point numbers."""

_MAX_DEBUG_TEXT = 256
_TYPE_NAMES: dict[type, str] = {
    type(None): "Null",
    str: "String",
    int: "Number",
    float: "Number",
    dict: "Object",
    list: "Array",
}

_REASONS = (
    ("Expecting property name", "Missing a name for object member."),
    ("Illegal trailing comma before end of object", "Missing a name for object member."),
    ("Expecting ':' delimiter", "Missing a colon after a name of object member."),
    ("Unterminated string", "Missing a closing quotation mark in string."),
    ("Invalid control character", "Invalid encoding in string."),
    ("Invalid \\escape", "Invalid escape character in string."),
    ("Invalid \\uXXXX escape", "Incorrect hex digit after \\u escape in string."),
)
_MISSING_COMMA = {
    "{": "Missing a comma or } after an object member.",
    "[": "Missing a comma or ] after an array element.",
}


class _TooBigError(ValueError):
    """Raised for a number beyond the range of double."""


def read_object(body: bytes, limits: Limits | None = None) -> dict[str, object]:
    """Parse the JSON object at the start of `body`. The rest is ignored, but counts for the `limits`.

    Raises:
        InferenceError: INVALID_REQUEST; as `check_json`.
    """
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    if limits is not None:
        check_json(body, limits)
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = _read_leniently(body)
    if not isinstance(document, dict):
        raise format_error(document, "Is not object")
    return cast("dict[str, object]", document)


def format_error(value: object, message: str) -> InferenceError:
    """Return an error that quotes an invalid value."""
    return invalid(f"JSON Value: {debug_text(value)} {message}")


def type_name(value: object) -> str:
    """Return the name of a JSON value's type in messages."""
    return str(value) if isinstance(value, bool) else _TYPE_NAMES[type(value)]


def debug_text(value: object) -> str:
    """Return a JSON value as messages quote it: objects on several lines, arrays on one, at most 256 characters."""
    text = ""
    for part in _debug_parts(value, "\n"):
        text += part
        if len(text) >= _MAX_DEBUG_TEXT:
            break
    return text[:_MAX_DEBUG_TEXT]


def _debug_parts(value: object, line_break: str) -> Iterator[str]:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        yield "{"
        for index, (key, member) in enumerate(members.items()):
            yield f"{',' if index else ''}{line_break}    {_quoted(key)}: "
            yield from _debug_parts(member, f"{line_break}    ")
        yield f"{line_break}}}" if members else "}"
    elif isinstance(value, list):
        yield "["
        for index, element in enumerate(cast("list[Any]", value)):
            yield ", " if index else ""
            yield from _debug_parts(element, line_break)
        yield "]"
    else:
        yield _quoted(value)


def _quoted(value: object) -> str:
    return json.dumps(value[:_MAX_DEBUG_TEXT] if isinstance(value, str) else value, ensure_ascii=False)


def _read_leniently(body: bytes) -> object:
    text, invalid_at = _decode_utf8_prefix(body.removeprefix(_BYTE_ORDER_MARK))
    white_space = _WHITE_SPACE.match(text)
    start = white_space.end() if white_space else 0
    if start == len(text) and invalid_at is None:
        raise _parse_error("The document is empty.", start)
    try:
        value, _ = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        if invalid_at is not None:
            raise _parse_error("Invalid encoding in string.", invalid_at) from None
        raise _parse_error(_reason(error), len(text[: error.pos].encode())) from None
    except _TooBigError as error:
        raise _parse_error("Number too big to be stored in double.", text.find(str(error))) from None
    except RecursionError:
        raise invalid("JSON Parse error: Arrays or objects are nested too deeply") from None
    if "\\u" in text and (surrogate := first_path(value, has_lone_surrogate)):
        raise invalid(f"JSON Parse error: The surrogate pair in string is invalid. at: {surrogate[0]}")
    return value


def _decode_utf8_prefix(body: bytes) -> tuple[str, int | None]:
    """Decode the body up to the first byte that is not UTF-8, and return that byte's position, if any."""
    try:
        return body.decode(), None
    except UnicodeDecodeError as error:
        return body[: error.start].decode(), error.start


def _reason(error: json.JSONDecodeError) -> str:
    for start, reason in _REASONS:
        if error.msg.startswith(start):
            return reason
    if error.msg.startswith("Expecting ',' delimiter"):
        depth = 0
        for bracket in reversed(re.sub(r"[^][{}]", "", _STRINGS.sub("", error.doc[: error.pos]))):
            depth += 1 if bracket in "]}" else -1
            if depth < 0:
                return _MISSING_COMMA[bracket]
    return "Invalid value."


def _parse_error(reason: str, offset: int) -> InferenceError:
    return invalid(f"JSON Parse error: {reason} at offset: {offset}")


def _decimal(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _TooBigError(text)
    return value


def _integer(text: str) -> int | float:
    return int(text) if len(text) <= _MAX_INTEGER_DIGITS else _decimal(text)


_DECODER = json.JSONDecoder(parse_float=_decimal, parse_int=_integer)
