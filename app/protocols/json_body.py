"""Reading JSON bodies, with errors that say where and why."""

import json
import math
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from tasks.exchange.error import InferenceError, invalid
from tasks.exchange.parameters import explained

__all__ = ("read_json",)

T = TypeVar("T")


def read_json(body: bytes | msgspec.Raw, kind: type[T], path: str = "") -> T:
    """Read `body` as `kind`.

    Raises:
        InferenceError: INVALID_REQUEST naming the field, under `path`, or the byte where the text stops being JSON.
    """
    try:
        return _decoder(kind).decode(body)
    except msgspec.ValidationError as error:
        raise explained(error, path) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _diagnosed(bytes(body), error, path) from None
    except RecursionError:
        raise invalid("Expected JSON of a sane depth, got one nested too deeply", path) from None


@cache
def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind)


def _diagnosed(body: bytes, error: Exception, path: str) -> InferenceError:
    if not body.strip():
        return invalid("Expected a JSON object, got an empty body", path)
    if isinstance(error, UnicodeDecodeError):
        return invalid("Expected JSON in UTF-8, got other bytes", path)
    # The standard library reads two things that are not JSON: NaN and Infinity, and halves of surrogate pairs. Having
    # read them, it can tell where they are.
    try:
        fault = _first_fault(json.loads(body), "")
    except (ValueError, RecursionError):
        fault = None
    if fault is None:
        return invalid(f"The body is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}", path)
    return fault.under(path) if path else fault


def _first_fault(value: object, path: str) -> InferenceError | None:
    if isinstance(value, float) and not math.isfinite(value):
        return invalid(f"Expected a finite number, got {value}", path)
    if isinstance(value, str) and _has_lone_surrogate(value):
        return invalid("Expected a string of Unicode text, got one with half of a surrogate pair", path)
    children: list[tuple[str, object]] = []
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        if any(_has_lone_surrogate(key) for key, _ in items):
            return invalid("Expected names of Unicode text, got one with half of a surrogate pair", path)
        children = [(f"{path}.{key}".removeprefix("."), child) for key, child in items]
    elif isinstance(value, list):
        children = [(f"{path}[{index}]", child) for index, child in enumerate(cast("list[Any]", value))]
    for child_path, child in children:
        fault = _first_fault(child, child_path)
        if fault is not None:
            return fault
    return None


def _has_lone_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
