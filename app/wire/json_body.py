"""Decode JSON bodies, with errors that name the field and the reason."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from app.wire.json_limits import check_json
from metadata.entry import METADATA_PARAMETER
from tasks.inference.error import InferenceError, invalid
from tasks.inference.limits import Limits
from tasks.inference.parameters import validation_error

T = TypeVar("T")

_MAX_DIAGNOSED_BYTES = 1_000_000
"""For larger invalid bodies, the error does not name the field: the search costs many times the body's size."""


def read_json(body: bytes | msgspec.Raw, expected_type: type[T], path: str = "", limits: Limits | None = None) -> T:
    """Decode `body` as `expected_type`.

    Args:
        body: the JSON text.
        expected_type: the type to decode.
        path: path of the text in the request.
        limits: limits for text that was not checked yet; None for a part of checked text.

    Raises:
        InferenceError: INVALID_REQUEST naming the field under `path`, or the byte where the text is not valid JSON; as
            `check_json`.
    """
    if limits is not None:
        check_json(bytes(body), limits, path)
    try:
        return _decoder(expected_type).decode(body)
    except msgspec.ValidationError as error:
        raise validation_error(error, path) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _diagnose(memoryview(body), error, path) from None
    except RecursionError:
        raise invalid("Expected JSON that is not nested too deeply", path) from None


def read_parameters_object(raw: Mapping[str, msgspec.Raw] | None, path: str) -> Mapping[str, object]:
    """Decode the members of a `parameters` object, except `metadata`, which stays as received to be returned.

    Raises:
        InferenceError: INVALID_REQUEST naming the invalid parameter under `path`.
    """
    if not raw:
        return {}
    parameters: dict[str, object] = {}
    for name, value in raw.items():
        value_path = f"{path}.{name}"
        is_metadata = name == METADATA_PARAMETER
        parameters[name] = _raw_utf8(value, value_path) if is_metadata else read_json(value, object, value_path)
    return parameters


def first_path(value: object, predicate: Callable[[object], bool], path: str = "") -> tuple[str, object] | None:
    """Return the path and value of the first match in `value`, depth first; None without a match.

    Args:
        value: decoded JSON.
        predicate: whether a value, or the name of a member, matches.
        path: the path of `value`.
    """
    levels: list[tuple[Iterator[tuple[str | int, object]], list[str | int]]] = [(iter([("", value)]), [])]
    while levels:
        children, parent_keys = levels[-1]
        for key, child in children:
            if isinstance(key, str) and key and predicate(key):
                return _path_of(path, parent_keys), key
            if predicate(child):
                return _path_of(path, [*parent_keys, key]), child
            if isinstance(child, dict):
                levels.append((iter(cast("dict[str, Any]", child).items()), [*parent_keys, key]))
                break
            if isinstance(child, list):
                levels.append((enumerate(cast("list[Any]", child)), [*parent_keys, key]))
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
def _decoder(expected_type: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(expected_type)


def _raw_utf8(raw: msgspec.Raw, path: str) -> msgspec.Raw:
    try:
        str(raw, "utf-8")
    except UnicodeDecodeError:
        raise invalid("Expected JSON in UTF-8, got other bytes", path) from None
    return raw.copy()


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
    invalid_item = None
    if len(body) <= _MAX_DIAGNOSED_BYTES:
        try:
            invalid_item = first_path(json.loads(bytes(body)), _is_invalid_json, path)
        except (ValueError, RecursionError):
            invalid_item = None
    if invalid_item is None:
        return invalid(f"The body is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}", path)
    item_path, value = invalid_item
    if isinstance(value, float):
        return invalid(f"Expected a finite number, got {value}", item_path)
    return invalid("Expected Unicode text, got half of a surrogate pair", item_path)


def _is_invalid_json(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    return has_lone_surrogate(value)
