"""`GrpsMessage`, the request and response type of every GRPS call, and its status."""

from typing import Any

from app.proto import message_class

GrpsMessage: Any = message_class("grps.protos.v1.GrpsMessage")
GenericTensor: Any = message_class("grps.protos.v1.GenericTensor")
"""The classes, which protobuf creates at run time."""

_SUCCESS = 1
_MAX_SHOWN_KEY = 80


def entry_path(field: str, key: str) -> str:
    """Return the path of a map entry for errors, with long keys cut."""
    shown_key = key if len(key) <= _MAX_SHOWN_KEY else f"{key[:_MAX_SHOWN_KEY]}..."
    return f"gmap.{field}[{shown_key}]"


def with_success_status(message: Any) -> Any:
    """Set the status of `message` to success, and return it."""
    message.status.code = 200
    message.status.msg = "OK"
    message.status.status = _SUCCESS
    return message
