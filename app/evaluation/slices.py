"""Slices of a dataset by metadata."""

import msgspec

__all__ = ("NO_VALUE", "Slice")

NO_VALUE = "(none)"
"""The value of items without the metadata key."""


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """The items whose metadata has `value` for `key`, and their number."""

    key: str
    value: str
    items: int
