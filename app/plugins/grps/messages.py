"""`GrpsMessage`, the request and response type of every GRPS call, its status, and its JSON types for OpenAPI."""

from typing import Any

import msgspec

from app.plugins.grps.proto import message_class
from tasks.inference.error import truncate

GrpsMessage: Any = message_class("grps.protos.v1.GrpsMessage")
GenericTensor: Any = message_class("grps.protos.v1.GenericTensor")
"""The classes, which protobuf creates at run time."""

_SUCCESS = 1


def entry_path(field: str, key: str) -> str:
    """Return the path of a map entry for errors, with long keys cut."""
    return f"gmap.{field}[{truncate(key)}]"


def with_success_status(message: Any, text: str = "OK") -> Any:
    """Set the status of `message` to success with a text, and return it."""
    message.status.code = 200
    message.status.msg = text
    message.status.status = _SUCCESS
    return message


class WireStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`code` is the HTTP status; `status` is SUCCESS or FAILURE."""

    code: int
    msg: str
    status: str


class WireRejection(msgspec.Struct, frozen=True, kw_only=True):
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
