"""Decode and encode the protocol's messages, except inference, as plain structs in protobuf's JSON form."""

from typing import Any, TypeVar

import msgspec
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import DecodeError

from app.proto import message_class
from tasks.inference.error import invalid
from tasks.inference.limits import too_large

__all__ = (
    "ModelReference",
    "RepositoryEntry",
    "RepositoryIndexRequest",
    "RepositoryModelRequest",
    "encode_message",
    "read_message",
)

_MAX_BYTES = 64 * 1024
"""These messages hold only names and versions."""

MessageT = TypeVar("MessageT", bound=msgspec.Struct)


class ModelReference(msgspec.Struct, frozen=True):
    """`ModelReadyRequest`, `ModelMetadataRequest`, `ModelStatisticsRequest`; an empty version means any version."""

    name: str = ""
    version: str = ""


class RepositoryIndexRequest(msgspec.Struct, frozen=True):
    """`RepositoryIndexRequest`."""

    repository_name: str = ""
    ready: bool = False


class RepositoryModelRequest(msgspec.Struct, frozen=True):
    """`RepositoryModelLoadRequest`, `RepositoryModelUnloadRequest`."""

    repository_name: str = ""
    model_name: str = ""
    parameters: dict[str, dict[str, Any]] = {}


class RepositoryEntry(msgspec.Struct, frozen=True):
    """An item of `models` in a `RepositoryIndexResponse`."""

    name: str
    version: str
    state: str
    reason: str


def read_message(name: str, data: bytes, struct_type: type[MessageT]) -> MessageT:
    """Decode the message type `name` into the struct `struct_type`, which has the same field names.

    Raises:
        InferenceError: INVALID_REQUEST when the bytes are not such a message, TOO_LARGE when there are too many.
    """
    if len(data) > _MAX_BYTES:
        raise too_large(_MAX_BYTES, f"bytes in a {name}", len(data))
    try:
        message = message_class(f"inference.{name}").FromString(data)
    except DecodeError:
        raise invalid(f"Expected a {name}, got other bytes") from None
    return msgspec.convert(MessageToDict(message, preserving_proto_field_name=True), struct_type)


def encode_message(name: str, content: object) -> bytes:
    """Encode `content` (structs, mappings, sequences and plain values) as the message type `name`."""
    return ParseDict(msgspec.to_builtins(content), message_class(f"inference.{name}")()).SerializeToString()
