"""Read and type the client's custom metadata, and decide what an output returns of it.

There are two forms (Chariot, "Inference Protocols" and "Inference Store"): an object with `standard_metadata` and
`extended_metadata`, and a list of entries. Both come as a JSON string, or as the JSON value itself.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import UnionType
from typing import Any, TypeVar, cast

import msgspec

from tasks.inference.error import quote_value
from tasks.inference.request import InferenceRequest

METADATA_PARAMETER = "metadata"
"""The name of the input parameter for metadata, and of the output parameter that returns it."""

SectionT = TypeVar("SectionT", dict[Any, Any], list[Any])

_INPUT_SUFFIX = f"].{METADATA_PARAMETER}"
_MAX_BYTES = 1 << 20
_MAX_QUICK_BYTES = 16 * 1024
_MAX_ENTRIES = 10_000
_EXPECTED: dict[type, str] = {dict: "an object", list: "a list of entries"}

_TEXTS = (str, bytes, msgspec.Raw)
_VALUES: dict[str, tuple[type | UnionType, str]] = {
    "str": (str, "a string value"),
    "int": (str | int, "an integer as a string"),
    "float": (str | int | float, "a number as a string"),
    "dict": (dict, "an object as a string of JSON"),
}
"""The types in JSON of the values of each type of entry, and their name in messages."""

MetadataValue = str | int | float | dict[str, Any]


class MetadataEntry(msgspec.Struct, frozen=True):
    """One extended entry. `type` is the name of the Python type of `value`: `str`, `int`, `float` or `dict`."""

    key: str
    type: str
    value: MetadataValue


class InputMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of one input.

    Attributes:
        standard: the section reserved for the platform, unchanged.
        entries: the valid extended entries.
        faults: a message for each invalid part. Faults never fail an inference.
    """

    standard: Mapping[str, object] = {}
    entries: Sequence[MetadataEntry] = ()
    faults: Sequence[str] = ()


def output_parameters(parameters: Mapping[str, object], /) -> Mapping[str, object]:
    """Return the parameters of the output for an input with `parameters`.

    These are the client's metadata, unchanged and unread, because the platform matches and stores them. An output that
    answers several inputs returns the metadata of each as ``inputs[<index>].metadata``.
    """
    return {
        name: value for name, value in parameters.items() if name == METADATA_PARAMETER or name.endswith(_INPUT_SUFFIX)
    }


class RequestMetadata:
    """The metadata of the inputs of a request, parsed at its first use.

    Args:
        values: the metadata of each input that has any, by its index.
        shared: the metadata of the request, which inputs without their own inherit; None without.
    """

    def __init__(self, values: Mapping[int, object], shared: object = None) -> None:
        self._values = values
        self._shared = shared

    @property
    def is_long(self) -> bool:
        """Return whether reading it takes longer than the event loop may be busy."""
        return sum(map(_size, self._values.values())) > _MAX_QUICK_BYTES

    @cached_property
    def by_input(self) -> Mapping[int, InputMetadata]:
        """Return the metadata of each input that has any. Inputs that inherit it from the request share one object."""
        inherited: InputMetadata | None = None
        by_input: dict[int, InputMetadata] = {}
        for index, value in self._values.items():
            if value is self._shared:
                by_input[index] = inherited = inherited or read_metadata(value)
            else:
                by_input[index] = read_metadata(value)
        return by_input

    def of(self, inputs: Iterable[int] | None = None) -> Sequence[InputMetadata]:
        """Return the metadata of some inputs, by default of all. What several of them share appears once."""
        if not self._values:
            return ()
        indices = self.by_input.keys() if inputs is None else inputs
        found = [self.by_input[index] for index in indices if index in self.by_input]
        return list({id(metadata): metadata for metadata in found}.values())


NO_METADATA = RequestMetadata({})


def metadata_of(request: InferenceRequest) -> RequestMetadata:
    """Return the metadata of a request."""
    values = {index: request.parameter(index, METADATA_PARAMETER) for index in range(len(request.inputs))}
    present = {index: value for index, value in values.items() if value is not None}
    return RequestMetadata(present, request.parameters.get(METADATA_PARAMETER))


def read_metadata(value: object) -> InputMetadata:
    """Read metadata in any form. Invalid parts become faults, never exceptions."""
    if (size := _size(value)) > _MAX_BYTES:
        # The output returns it unread.
        return InputMetadata(faults=(f"metadata: expected at most {_MAX_BYTES:,} bytes, got {size:,}",))
    try:
        content = _parsed(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return InputMetadata(faults=(f"metadata is not JSON: {error}",))
    if isinstance(content, list):
        return _entries({}, cast("list[object]", content))
    if not isinstance(content, dict):
        return InputMetadata(faults=(f"metadata: expected an object or a list of entries, got {_json_type(content)}",))
    sections = cast("dict[str, object]", content)
    faults: list[str] = []
    standard = _section(sections, "standard_metadata", dict, faults)
    extended = _section(sections, "extended_metadata", list, faults)
    metadata = _entries(cast("dict[str, object]", standard), cast("list[object]", extended))
    return msgspec.structs.replace(metadata, faults=(*faults, *metadata.faults))


def _section(sections: Mapping[str, object], name: str, section_type: type[SectionT], faults: list[str]) -> SectionT:
    value = sections.get(name)
    if isinstance(value, section_type):
        return value
    if value is not None:
        faults.append(f"{name}: expected {_EXPECTED[section_type]}, got {_json_type(value)}")
    return section_type()


def _size(value: object) -> int:
    return len(memoryview(value) if isinstance(value, msgspec.Raw) else value) if isinstance(value, _TEXTS) else 0


def _parsed(value: object) -> object:
    if isinstance(value, msgspec.Raw):
        value = msgspec.json.decode(value)
    if isinstance(value, str | bytes):
        return msgspec.json.decode(value)
    return value


def _entries(standard: Mapping[str, object], items: Sequence[object]) -> InputMetadata:
    entries: list[MetadataEntry] = []
    faults: list[str] = []
    if len(items) > _MAX_ENTRIES:
        faults.append(f"extended_metadata: expected at most {_MAX_ENTRIES:,} entries, got {len(items):,}")
    for position, item in enumerate(items[:_MAX_ENTRIES]):
        try:
            entries.append(_entry(item))
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            faults.append(f"extended_metadata[{position}]: {error}")
    return InputMetadata(standard=standard, entries=entries, faults=faults)


class _WireEntry(msgspec.Struct):
    key: str
    type: str
    value: Any


def _entry(item: object) -> MetadataEntry:
    wire = msgspec.convert(item, _WireEntry)
    if wire.type not in _VALUES:
        raise ValueError(f"expected type str, int, float or dict, got {quote_value(wire.type)}")
    value_type, expected = _VALUES[wire.type]
    is_text_of_dict = wire.type == "dict" and isinstance(wire.value, str)
    value: Any = msgspec.json.decode(wire.value) if is_text_of_dict else wire.value
    if isinstance(value, bool) or not isinstance(value, value_type):
        raise ValueError(f"expected {expected}, got {_json_type(value)}")
    if wire.type == "int":
        value = int(value)
    elif wire.type == "float" and not math.isfinite(value := float(value)):
        raise ValueError(f"expected a finite number, got {quote_value(wire.value)}")
    return MetadataEntry(wire.key, wire.type, value)


def _json_type(value: object) -> str:
    return "null" if value is None else type(value).__name__
