"""The sender's custom metadata, read and typed.

Two forms are in use (Chariot, "Inference Protocols" and "Inference Store"): an object with `standard_metadata` and
`extended_metadata`, and a bare list of entries. Either comes as a string of JSON, or as the JSON itself.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from tasks.exchange.error import brief

__all__ = ("PARAMETER", "Metadata", "MetadataEntry", "read_metadata")

PARAMETER = "metadata"
"""The name of the input parameter that carries metadata, and of the output parameter that returns it."""

SectionT = TypeVar("SectionT", dict[Any, Any], list[Any])

_MOST_BYTES = 1 << 20
_MOST_ENTRIES = 10_000
_EXPECTED: dict[type, str] = {dict: "an object", list: "a list of entries"}

_TEXTS = (str, bytes, msgspec.Raw)

MetadataValue = str | int | float | dict[str, Any]


class MetadataEntry(msgspec.Struct, frozen=True):
    """One extended entry: `value` is of the Python type that `type` names (`str`, `int`, `float` or `dict`)."""

    key: str
    type: str
    value: MetadataValue


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """What could be read of one input's metadata.

    Attributes:
        standard: the section reserved for the platform, as it came.
        entries: the extended entries that could be typed.
        faults: a sentence for each part that could not be read. They never fail an inference.
    """

    standard: Mapping[str, object] = {}
    entries: Sequence[MetadataEntry] = ()
    faults: Sequence[str] = ()


def read_metadata(value: object) -> Metadata:
    """Read metadata in any of its forms; what cannot be read becomes a fault, never an exception."""
    if (size := _size(value)) > _MOST_BYTES:
        # It goes back all the same.
        return Metadata(faults=(f"metadata: expected at most {_MOST_BYTES:,} bytes, got {size:,}",))
    try:
        content = _parsed(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return Metadata(faults=(f"metadata is not JSON: {error}",))
    if isinstance(content, list):
        return _entries({}, cast("list[object]", content))
    if not isinstance(content, dict):
        return Metadata(faults=(f"metadata: expected an object or a list of entries, got {_kind(content)}",))
    sections = cast("dict[str, object]", content)
    faults: list[str] = []
    standard = _section(sections, "standard_metadata", dict, faults)
    extended = _section(sections, "extended_metadata", list, faults)
    read = _entries(cast("dict[str, object]", standard), cast("list[object]", extended))
    return msgspec.structs.replace(read, faults=(*faults, *read.faults))


def _section(sections: Mapping[str, object], name: str, kind: type[SectionT], faults: list[str]) -> SectionT:
    value = sections.get(name)
    if isinstance(value, kind):
        return value
    if value is not None:
        faults.append(f"{name}: expected {_EXPECTED[kind]}, got {_kind(value)}")
    return kind()


def _size(value: object) -> int:
    return len(memoryview(value) if isinstance(value, msgspec.Raw) else value) if isinstance(value, _TEXTS) else 0


def _parsed(value: object) -> object:
    if isinstance(value, msgspec.Raw):
        value = msgspec.json.decode(value)
    if isinstance(value, str | bytes):
        return msgspec.json.decode(value)
    return value


def _entries(standard: Mapping[str, object], items: Sequence[object]) -> Metadata:
    entries: list[MetadataEntry] = []
    faults: list[str] = []
    if len(items) > _MOST_ENTRIES:
        faults.append(f"extended_metadata: expected at most {_MOST_ENTRIES:,} entries, got {len(items):,}")
    for position, item in enumerate(items[:_MOST_ENTRIES]):
        try:
            entries.append(_entry(item))
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            faults.append(f"extended_metadata[{position}]: {error}")
    return Metadata(standard=standard, entries=entries, faults=faults)


class _WireEntry(msgspec.Struct):
    key: str
    type: str
    value: Any


def _entry(item: object) -> MetadataEntry:
    wire = msgspec.convert(item, _WireEntry)
    reader = _READERS.get(wire.type)
    if reader is None:
        raise ValueError(f"expected type str, int, float or dict, got {brief(wire.type)}")
    return MetadataEntry(wire.key, wire.type, reader(wire.value))


def _read_str(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a string value, got {_kind(value)}")
    return value


def _read_int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"expected an integer as a string, got {_kind(value)}")
    return int(value)


def _read_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"expected a number as a string, got {_kind(value)}")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, got {brief(value)}")
    return number


def _read_dict(value: object) -> dict[str, Any]:
    content: object = msgspec.json.decode(value) if isinstance(value, str) else value
    if not isinstance(content, dict):
        raise ValueError(f"expected an object as a string of JSON, got {_kind(content)}")
    return cast("dict[str, Any]", content)


_READERS: dict[str, Callable[[object], MetadataValue]] = {
    "str": _read_str,
    "int": _read_int,
    "float": _read_float,
    "dict": _read_dict,
}


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__
