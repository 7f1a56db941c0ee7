"""Decode JSON bodies, with errors that name the field and the reason."""

import json
import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from app.protocols.json_bounds import check_json
from tasks.exchange.error import InferenceError, invalid
from tasks.exchange.limits import Limits
from tasks.exchange.parameters import explained

__all__ = ("first_path", "has_lone_surrogate", "read_json")

T = TypeVar("T")

_MAX_DIAGNOSED_BYTES = 1_000_000
"""For larger invalid bodies, the error does not name the field: the search costs many times the body's size."""


def read_json(body: bytes | msgspec.Raw, kind: type[T], path: str = "", limits: Limits | None = None) -> T:
    """Decode `body` as `kind`.

    Args:
        body: the JSON text.
        kind: the type to decode.
        path: path of the text in the request.
        limits: limits for text that was not checked yet; None for a part of checked text.

    Raises:
        InferenceError: INVALID_REQUEST naming the field under `path`, or the byte where the text is not valid JSON; as
            `check_json`.
    """
    if limits is not None:
        check_json(bytes(body), limits, path)
    try:
        return _decoder(kind).decode(body)
    except msgspec.ValidationError as error:
        raise explained(error, path) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _diagnose(memoryview(body), error, path) from None
    except RecursionError:
        raise invalid("Expected JSON that is not nested too deeply", path) from None


def first_path(value: object, wanted: Callable[[object], bool], path: str = "") -> tuple[str, object] | None:
    """Return the path and value of the first `wanted` value or name in `value`, depth first; None if there is none."""
    levels: list[tuple[Iterator[tuple[str | int, object]], list[str | int]]] = [(iter([("", value)]), [])]
    while levels:
        children, above = levels[-1]
        for key, child in children:
            if isinstance(key, str) and key and wanted(key):
                return _path_of(path, above), key
            if wanted(child):
                return _path_of(path, [*above, key]), child
            if isinstance(child, dict):
                levels.append((iter(cast("dict[str, Any]", child).items()), [*above, key]))
                break
            if isinstance(child, list):
                levels.append((enumerate(cast("list[Any]", child)), [*above, key]))
                break
        else:
            levels.pop()
    return None


def has_lone_surrogate(value: object) -> bool:
    """Return whether `value` is a text that UTF-8 cannot encode."""
    if not isinstance(value, str) or value.isascii():
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return True
    return False


@cache
def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind)


def _path_of(path: str, keys: list[str | int]) -> str:
    for key in keys:
        path += f"[{key}]" if isinstance(key, int) else f".{key}" if path and key else key
    return path


def _diagnose(body: memoryview, error: Exception, path: str) -> InferenceError:
    if not bytes(body[:_MAX_DIAGNOSED_BYTES]).strip():
        return invalid("Expected a JSON object, got an empty body", path)
    if isinstance(error, UnicodeDecodeError):
        return invalid("Expected JSON in UTF-8, got other bytes", path)
    # The standard library accepts two things that are not JSON: NaN and Infinity, and lone surrogates. Use its result
    # to find them.
    found = None
    if len(body) <= _MAX_DIAGNOSED_BYTES:
        try:
            found = first_path(json.loads(bytes(body)), _is_invalid_json, path)
        except (ValueError, RecursionError):
            found = None
    if found is None:
        return invalid(f"The body is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}", path)
    where, value = found
    if isinstance(value, float):
        return invalid(f"Expected a finite number, got {value}", where)
    return invalid("Expected Unicode text, got half of a surrogate pair", where)


def _is_invalid_json(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    return has_lone_surrogate(value)
