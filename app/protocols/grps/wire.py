"""The JSON of GRPS's messages as the service's own description (OpenAPI) tells it."""

from typing import Any

import msgspec

__all__ = ("WireMessage", "WireRefusal", "WireStatus")


class WireStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`code` is the HTTP status; `status` is SUCCESS or FAILURE."""

    code: int
    msg: str
    status: str


class WireRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """A message of nothing but a status."""

    status: WireStatus


class WireMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A `GrpsMessage`: one kind of data, and of a request the model, of an answer the status."""

    status: WireStatus | msgspec.UnsetType = msgspec.UNSET
    model: str | msgspec.UnsetType = msgspec.UNSET
    str_data: str | msgspec.UnsetType = msgspec.UNSET
    gtensors: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    ndarray: Any | msgspec.UnsetType = msgspec.UNSET
    gmap: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
