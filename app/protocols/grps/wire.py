"""The JSON types of GRPS's messages, for OpenAPI."""

from typing import Any

import msgspec


class WireStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`code` is the HTTP status; `status` is SUCCESS or FAILURE."""

    code: int
    msg: str
    status: str


class WireRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """A message with only a status."""

    status: WireStatus


class WireMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A `GrpsMessage`: one kind of data; in requests also the model and whether to stream, in responses the status."""

    status: WireStatus | msgspec.UnsetType = msgspec.UNSET
    model: str | msgspec.UnsetType = msgspec.UNSET
    str_data: str | msgspec.UnsetType = msgspec.UNSET
    gtensors: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    ndarray: Any | msgspec.UnsetType = msgspec.UNSET
    gmap: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    streaming: bool | msgspec.UnsetType = msgspec.UNSET
