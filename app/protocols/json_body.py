"""Reading JSON bodies, with errors that say where and why."""

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

_DIAGNOSED_BYTES = 1_000_000
"""A larger body that is not JSON is refused without a search for the field: the search costs many times its size."""


def read_json(body: bytes | msgspec.Raw, kind: type[T], path: str = "", limits: Limits | None = None) -> T:
    """Read `body` as `kind`.

    Args:
        body: the text.
        kind: the type it is to have.
        path: where it stands.
        limits: for a text that nobody has looked at yet, how much JSON it may be; None for a part of another.

    Raises:
        InferenceError: INVALID_REQUEST naming the field, under `path`, or the byte where the text stops being JSON; as
            `check_json`.
    """
    if limits is not None:
        check_json(bytes(body), limits, path)
    try:
        return _decoder(kind).decode(body)
    except msgspec.ValidationError as error:
        raise explained(error, path) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _diagnosed(memoryview(body), error, path) from None
    except RecursionError:
        raise invalid("Expected JSON of a sane depth, got one nested too deeply", path) from None


def first_path(value: object, wanted: Callable[[object], bool], path: str = "") -> tuple[str, object] | None:
    """Where in `value`, read depth first, the first value or name stands that is `wanted`, and what it is."""
    levels: list[tuple[Iterator[tuple[str | int, object]], list[str | int]]] = [(iter([("", value)]), [])]
    while levels:
        children, above = levels[-1]
        for key, child in children:
            if isinstance(key, str) and key and wanted(key):
                return _written(path, above), key
            if wanted(child):
                return _written(path, [*above, key]), child
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
    """Whether `value` is a text that cannot be written in UTF-8."""
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


def _written(path: str, keys: list[str | int]) -> str:
    for key in keys:
        path += f"[{key}]" if isinstance(key, int) else f".{key}" if path and key else key
    return path


def _diagnosed(body: memoryview, error: Exception, path: str) -> InferenceError:
    if not bytes(body[:_DIAGNOSED_BYTES]).strip():
        return invalid("Expected a JSON object, got an empty body", path)
    if isinstance(error, UnicodeDecodeError):
        return invalid("Expected JSON in UTF-8, got other bytes", path)
    # The standard library reads two things that are not JSON: NaN and Infinity, and halves of surrogate pairs. Having
    # read them, it can tell where they are.
    found = None
    if len(body) <= _DIAGNOSED_BYTES:
        try:
            found = first_path(json.loads(bytes(body)), _is_no_json, path)
        except (ValueError, RecursionError):
            found = None
    if found is None:
        return invalid(f"The body is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}", path)
    where, value = found
    if isinstance(value, float):
        return invalid(f"Expected a finite number, got {value}", where)
    return invalid("Expected Unicode text, got half of a surrogate pair", where)


def _is_no_json(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    return has_lone_surrogate(value)
