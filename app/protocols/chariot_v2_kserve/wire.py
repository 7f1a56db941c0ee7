"""The JSON types of chariot-v2-kserve (Chariot documentation, "Inference Protocols")."""

from collections.abc import Mapping, Sequence

import msgspec

from tasks.inference.response import Record

WireParameters = dict[str, msgspec.Raw]


class WireInput(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a request's `inputs`."""

    name: str
    datatype: str
    shape: list[int]
    data: msgspec.Raw
    parameters: WireParameters | None = None


class WireRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request's body."""

    inputs: list[WireInput]
    id: str | None = None
    parameters: WireParameters | None = None


class WireOutput(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a response's `outputs`. `data` holds a list of records for each image or text of the input."""

    name: str
    shape: tuple[int]
    datatype: str
    data: Sequence[Sequence[Record]]
    parameters: Mapping[str, object] | msgspec.UnsetType = msgspec.UNSET


class WireResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response's body."""

    id: str
    model_name: str
    model_version: str
    outputs: Sequence[WireOutput]
