"""Read and validate the parameters of requests and inputs."""

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, TypeVar, get_args

import msgspec

from tasks.inference.error import ErrorKind, InferenceError, invalid, truncate

T = TypeVar("T")

Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
"""A score or an overlap: 0..1, inclusive."""

Positive = Annotated[int, msgspec.Meta(ge=1)]
"""A count of at least one."""

TextList = tuple[str, ...]
"""Several texts. A string is also accepted: a JSON array of strings, or else one text."""

_MAX_LIST_CHARACTERS = 4 * 1024 * 1024
_PATH_SUFFIX = re.compile(r" - at `(?:key in )?\$(?P<path>[^`]*)`$")
_ENUM_VALUE = re.compile(r"(?<=^Invalid enum value ).*", re.DOTALL)


def convert(value: object, target_type: type[T], path: str = "") -> T:
    """Convert `value` to `target_type` strictly, without coercion between types.

    Raises:
        InferenceError: INVALID_REQUEST, naming the first invalid field.
    """
    try:
        return msgspec.convert(value, target_type)
    except msgspec.ValidationError as error:
        raise validation_error(error, path) from None


def validation_error(error: msgspec.ValidationError, path: str = "") -> InferenceError:
    """Return the error of msgspec as an InferenceError, with its path ``$.a[0].b`` placed under `path`."""
    text = str(error)
    suffix = _PATH_SUFFIX.search(text)
    message = _ENUM_VALUE.sub(lambda match: truncate(match[0]), _PATH_SUFFIX.sub("", text))
    invalid_error = invalid(message, suffix["path"].removeprefix(".") if suffix else "")
    return invalid_error.with_prefix(path) if path else invalid_error


def read_parameters(parameters_type: type[T], *layers: Mapping[str, object], path: str = "parameters") -> T:
    """Merge `layers`, later ones over earlier ones, and read the fields that `parameters_type` declares.

    Unknown names are ignored, because clients add their own; null counts as absent.

    Raises:
        InferenceError: INVALID_REQUEST, naming ``<path>.<field>``, for a wrong type, a number that is not finite, or a
            value out of range.
    """
    merged: dict[str, object] = {}
    names = _names(parameters_type)
    for layer in layers:
        for name, value in layer.items():
            if value is not None and name in names:
                merged[name] = value  # noqa: PERF403  a comprehension is one more call for each request
    if not merged:
        return _defaults(parameters_type)
    lists = _text_lists(parameters_type)
    values: dict[str, object] = {}
    for name, value in merged.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise invalid(f"Expected a finite number, got {value}", f"{path}.{name}")
        if isinstance(value, str) and name in lists:
            value = _text_list(value, f"{path}.{name}")
        values[name] = value
    return convert(values, parameters_type, path)


def _text_list(value: str, path: str) -> object:
    if not value.lstrip().startswith("["):
        return [value]
    if len(value) > _MAX_LIST_CHARACTERS:
        message = f"Expected a JSON array of at most {_MAX_LIST_CHARACTERS:,} characters, got {len(value):,}"
        raise InferenceError(ErrorKind.TOO_LARGE, message, path)
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        raise invalid(f"Expected a JSON array of strings, got text that is not JSON ({error})", path) from None


@cache
def _defaults(parameters_type: type[T]) -> T:
    return parameters_type()


@cache
def _names(parameters_type: type[Any]) -> frozenset[str]:
    return frozenset(field.name for field in msgspec.structs.fields(parameters_type))


@cache
def _text_lists(parameters_type: type[Any]) -> frozenset[str]:
    return frozenset(
        field.name
        for field in msgspec.structs.fields(parameters_type)
        if field.type == TextList or TextList in get_args(field.type)
    )
