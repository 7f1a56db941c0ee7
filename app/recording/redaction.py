"""What an operator does not want to be recorded, taken out before anything is written."""

from collections.abc import Collection, Mapping, Sequence
from typing import cast

import msgspec

from metadata.entry import MetadataEntry

__all__ = ("REDACTED", "Redaction")

REDACTED = "[redacted]"
"""What stands in the place of a value that was taken out."""


_DEEPEST = 100


class Redaction:
    """Replaces the values of some keys, however deep they lie.

    Args:
        keys: of metadata, of parameters, and of objects within them or within records; in any case of letters.
    """

    def __init__(self, keys: Collection[str]) -> None:
        self._keys = frozenset(key.casefold() for key in keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def hides(self, key: str) -> bool:
        """Whether what is under `key` is replaced."""
        return key.casefold() in self._keys

    def value(self, value: object, depth: int = _DEEPEST) -> object:
        """`value` with what is under the keys replaced, wherever objects and lists in it have them.

        Objects and lists within more than `depth` others are replaced as a whole: nobody has looked into them.
        """
        if isinstance(value, msgspec.Raw | msgspec.Struct):
            value = msgspec.json.decode(msgspec.json.encode(value, enc_hook=str))
        if isinstance(value, Mapping | list | tuple) and depth == 0:
            return REDACTED
        if isinstance(value, Mapping):
            return {
                key: REDACTED if self.hides(str(key)) else self.value(inner, depth - 1)
                for key, inner in cast("Mapping[object, object]", value).items()
            }
        if isinstance(value, list | tuple):
            return [self.value(each, depth - 1) for each in cast("Sequence[object]", value)]
        return value

    def entries(self, entries: Sequence[MetadataEntry]) -> Sequence[MetadataEntry]:
        """`entries` with those under the keys replaced by a str, and what is inside the others replaced."""
        return [
            MetadataEntry(each.key, "str", REDACTED)
            if self.hides(each.key)
            else MetadataEntry(each.key, each.type, self.value(each.value))  # pyright: ignore[reportArgumentType]
            for each in entries
        ]

    def message(self, message: str) -> str:
        """`message`, unless it names one of the keys: it may quote what is under it."""
        folded = message.casefold()
        return REDACTED if any(key in folded for key in self._keys) else message
