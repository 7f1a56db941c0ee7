"""Remove confidential values before anything is recorded."""

from collections.abc import Collection, Mapping, Sequence
from typing import cast

import msgspec

from metadata.entry import MetadataEntry

REDACTED = "[redacted]"
"""Replacement for a removed value."""


_MAX_DEPTH = 100


class Redaction:
    """Replace the values of some keys at any depth.

    Args:
        keys: case-insensitive keys of metadata, of parameters, and of objects inside them or inside records.
    """

    def __init__(self, keys: Collection[str]) -> None:
        self._keys = frozenset(key.casefold() for key in keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def redacts(self, key: str) -> bool:
        """Return whether the value of `key` is replaced."""
        return key.casefold() in self._keys

    def value(self, value: object, depth: int = _MAX_DEPTH) -> object:
        """Return `value` with the values of the keys replaced, also in nested objects and lists.

        Objects and lists nested deeper than `depth` are replaced completely, because they are not searched.
        """
        if isinstance(value, msgspec.Raw | msgspec.Struct):
            value = msgspec.json.decode(msgspec.json.encode(value, enc_hook=str))
        if isinstance(value, Mapping | list | tuple) and depth == 0:
            return REDACTED
        if isinstance(value, Mapping):
            return {
                key: REDACTED if self.redacts(str(key)) else self.value(inner, depth - 1)
                for key, inner in cast("Mapping[object, object]", value).items()
            }
        if isinstance(value, list | tuple):
            return [self.value(item, depth - 1) for item in cast("Sequence[object]", value)]
        return value

    def entries(self, entries: Sequence[MetadataEntry]) -> Sequence[MetadataEntry]:
        """Return `entries` with the values of the keys replaced by a str, also inside nested values."""
        return [
            MetadataEntry(entry.key, "str", REDACTED)
            if self.redacts(entry.key)
            else MetadataEntry(entry.key, entry.type, self.value(entry.value))  # pyright: ignore[reportArgumentType]
            for entry in entries
        ]

    def message(self, message: str) -> str:
        """Return `message`, or the replacement if it names a key: it may then quote the value."""
        folded = message.casefold()
        return REDACTED if any(key in folded for key in self._keys) else message
