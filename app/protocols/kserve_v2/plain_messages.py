"""Decode and encode the protocol's messages, except inference."""

from typing import Any

import msgspec
from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError

from app.proto import message_class
from tasks.inference.error import invalid
from tasks.inference.limits import too_large

__all__ = ("encode_message", "read_message")

_MAX_BYTES = 64 * 1024
"""These messages hold only names and versions."""


def read_message(name: str, data: bytes) -> Any:
    """Decode the message type `name`.

    Raises:
        InferenceError: INVALID_REQUEST when the bytes are not such a message, TOO_LARGE when there are too many.
    """
    if len(data) > _MAX_BYTES:
        raise too_large(_MAX_BYTES, f"bytes in a {name}", len(data))
    try:
        return message_class(f"inference.{name}").FromString(data)
    except DecodeError:
        raise invalid(f"Expected a {name}, got other bytes") from None


def encode_message(name: str, content: object) -> bytes:
    """Encode `content` (structs, mappings, sequences and plain values) as the message type `name`."""
    return ParseDict(msgspec.to_builtins(content), message_class(f"inference.{name}")()).SerializeToString()
