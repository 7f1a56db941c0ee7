"""The JSON types of chariot-v2, as Striveworks' public YOLO engine uses them."""

from collections.abc import Mapping, Sequence

import msgspec

from tasks.inference.response import Record


class WireRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One input: an encoded image in base64."""

    input: str
    parameters: dict[str, msgspec.Raw] | None = None


class WireResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The records for one input, and the metadata of the request."""

    output: Sequence[Record]
    parameters: Mapping[str, object] | msgspec.UnsetType = msgspec.UNSET
