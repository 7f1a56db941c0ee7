"""Parts of a dataset by what is known of its images."""

import msgspec

__all__ = ("NO_VALUE", "Slice")

NO_VALUE = "(none)"
"""Of items whose metadata does not have the key."""


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """The items whose metadata has `value` under `key`, and how many they are."""

    key: str
    value: str
    items: int
