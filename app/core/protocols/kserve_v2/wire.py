"""The JSON types of the Open Inference Protocol, version 2 (its REST specification), and of its extensions."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tasks.inference.tensor import TensorSpec

WireParameters = dict[str, msgspec.Raw]


class WireInput(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a request's `inputs`; with the binary extension, its data follow the JSON."""

    name: str
    shape: list[int]
    datatype: str
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    parameters: WireParameters | None = None


class WireRequestedOutput(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a request's `outputs`."""

    name: str
    parameters: dict[str, Any] | None = None


class WireRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request's body."""

    inputs: list[WireInput]
    id: str | None = None
    outputs: list[WireRequestedOutput] | None = None
    parameters: WireParameters | None = None


class WireOutput(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a response's `outputs`."""

    name: str
    datatype: str
    shape: Sequence[int]
    data: Sequence[Any] | msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    parameters: Mapping[str, object] | msgspec.UnsetType = msgspec.UNSET


class WireResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response's body."""

    model_name: str
    model_version: str
    outputs: Sequence[WireOutput]
    id: str | msgspec.UnsetType = msgspec.UNSET


class WireMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """A model's metadata."""

    name: str
    versions: Sequence[str]
    platform: str
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]


class WireServerMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """The server's name, version and extensions."""

    name: str
    version: str
    extensions: Sequence[str]
