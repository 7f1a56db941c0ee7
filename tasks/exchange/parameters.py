"""Typed, checked reading of the parameters that ride beside an input."""

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, TypeVar, get_args

import msgspec

from tasks.exchange.error import ErrorKind, InferenceError, invalid, shortened

__all__ = ("Fraction", "Positive", "TextList", "convert", "explained", "read_parameters")

T = TypeVar("T")

Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
"""A score or an overlap: 0 to 1, both ends included."""

Positive = Annotated[int, msgspec.Meta(ge=1)]
"""A count of at least one."""

TextList = tuple[str, ...]
"""Several texts. Where parameters cannot be arrays, a string holds a JSON array; a plain text is a list of one."""

_LONGEST_LIST = 4 * 1024 * 1024
_AT = re.compile(r" - at `(?:key in )?\$(?P<path>[^`]*)`$")
_QUOTED = re.compile(r"(?<=^Invalid enum value ).*", re.DOTALL)


def convert(value: object, kind: type[T], path: str = "") -> T:
    """Check `value` against `kind` without coercing between kinds of value.

    Raises:
        InferenceError: INVALID_REQUEST naming the first field that does not fit.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise explained(error, path) from None


def explained(error: msgspec.ValidationError, path: str = "") -> InferenceError:
    """What msgspec has against a value, with its ``$.a[0].b`` turned into a path under `path`."""
    text = str(error)
    at = _AT.search(text)
    said = _QUOTED.sub(lambda match: shortened(match[0]), _AT.sub("", text))
    found = invalid(said, at["path"].removeprefix(".") if at else "")
    return found.under(path) if path else found


def read_parameters(kind: type[T], *layers: Mapping[str, object], path: str = "parameters") -> T:
    """Merge `layers`, the later over the earlier, and read the fields that `kind` declares.

    Unknown names are ignored, because senders add their own; a null counts as absent.

    Raises:
        InferenceError: INVALID_REQUEST naming ``<path>.<field>`` for a wrong type, a number that is not finite, or one
            out of range.
    """
    merged: dict[str, object] = {}
    names = _names(kind)
    for layer in layers:
        merged.update({name: value for name, value in layer.items() if value is not None and name in names})
    if not merged:
        return _defaults(kind)
    lists = _text_lists(kind)
    known: dict[str, object] = {}
    for name, value in merged.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise invalid(f"Expected a finite number, got {value}", f"{path}.{name}")
        if isinstance(value, str) and name in lists:
            value = _texts(value, f"{path}.{name}")
        known[name] = value
    return convert(known, kind, path)


def _texts(value: str, path: str) -> object:
    if not value.lstrip().startswith("["):
        return [value]
    if len(value) > _LONGEST_LIST:
        message = f"Expected a JSON array of at most {_LONGEST_LIST:,} characters, got {len(value):,}"
        raise InferenceError(ErrorKind.TOO_LARGE, message, path)
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        raise invalid(f"Expected a JSON array of strings, got text that is not JSON ({error})", path) from None


@cache
def _defaults(kind: type[T]) -> T:
    return kind()


@cache
def _names(kind: type[Any]) -> frozenset[str]:
    return frozenset(field.name for field in msgspec.structs.fields(kind))


@cache
def _text_lists(kind: type[Any]) -> frozenset[str]:
    return frozenset(
        field.name
        for field in msgspec.structs.fields(kind)
        if field.type == TextList or TextList in get_args(field.type)
    )
