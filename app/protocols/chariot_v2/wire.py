"""The JSON shapes of chariot-v2, as Striveworks' public YOLO engine reads and writes them."""

from collections.abc import Mapping, Sequence

import msgspec

from tasks.exchange.response import Record

__all__ = ("WireRequest", "WireResponse")


class WireRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One input: base64 of an encoded image."""

    input: str
    parameters: dict[str, msgspec.Raw] | None = None


class WireResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The items found for one input, and the metadata that came with it."""

    output: Sequence[Record]
    parameters: Mapping[str, object] | msgspec.UnsetType = msgspec.UNSET
