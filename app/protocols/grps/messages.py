"""`GrpsMessage`, which every call of GRPS takes and answers with, and the status in it."""

from typing import Any

from google.protobuf.message import DecodeError

from app.protocols.message_bounds import check_message
from app.protocols.pb import message_class
from tasks.exchange.error import invalid
from tasks.exchange.limits import Limits

__all__ = ("GrpsMessage", "entry_path", "read_message", "succeeded")

GrpsMessage: Any = message_class("grps.protos.v1.GrpsMessage")
"""The class, which protobuf makes."""

_SUCCESS = 1
_LONGEST_KEY = 80


def read_message(data: bytes, limits: Limits) -> Any:
    """A serialized message, of no more than `limits` allow.

    Raises:
        InferenceError: INVALID_REQUEST when it is none; as `check_message`.
    """
    check_message(data, GrpsMessage.DESCRIPTOR, limits)
    try:
        return GrpsMessage.FromString(data)
    except DecodeError:
        raise invalid("Expected a GrpsMessage, got bytes that are none") from None


def entry_path(field: str, key: str) -> str:
    """Where an entry of a map stands, as errors name it: never more than a line."""
    shown = key if len(key) <= _LONGEST_KEY else f"{key[:_LONGEST_KEY]}..."
    return f"gmap.{field}[{shown}]"


def succeeded(message: Any) -> Any:
    """`message` with the status of an answer."""
    message.status.code = 200
    message.status.msg = "OK"
    message.status.status = _SUCCESS
    return message
