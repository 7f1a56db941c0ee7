"""The protocol's small messages, all but those of inference, as the plain values of protobuf's JSON form."""

from typing import Any, TypeVar

import msgspec
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import DecodeError

from app.protocols.pb import message_class
from tasks.exchange.error import invalid
from tasks.exchange.limits import beyond

__all__ = ("NamedModel", "RepositoryEntry", "RepositoryModel", "RepositoryWish", "read_message", "written_message")

_MOST_BYTES = 64 * 1024
"""Names and versions are all that such messages hold."""

MessageT = TypeVar("MessageT", bound=msgspec.Struct)


class NamedModel(msgspec.Struct, frozen=True):
    """`ModelReadyRequest`, `ModelMetadataRequest`, `ModelStatisticsRequest`; an empty version is any."""

    name: str = ""
    version: str = ""


class RepositoryWish(msgspec.Struct, frozen=True):
    """`RepositoryIndexRequest`."""

    repository_name: str = ""
    ready: bool = False


class RepositoryModel(msgspec.Struct, frozen=True):
    """`RepositoryModelLoadRequest`, `RepositoryModelUnloadRequest`."""

    repository_name: str = ""
    model_name: str = ""
    parameters: dict[str, dict[str, Any]] = {}


class RepositoryEntry(msgspec.Struct, frozen=True):
    """One of the `models` of a `RepositoryIndexResponse`."""

    name: str
    version: str
    state: str
    reason: str


def read_message(name: str, data: bytes, kind: type[MessageT]) -> MessageT:
    """Read the message called `name` as `kind`, whose fields have its fields' names.

    Raises:
        InferenceError: INVALID_REQUEST when the bytes are no such message, TOO_LARGE when there are more than it needs.
    """
    if len(data) > _MOST_BYTES:
        raise beyond(_MOST_BYTES, f"bytes in a {name}", len(data))
    try:
        message = message_class(f"inference.{name}").FromString(data)
    except DecodeError:
        raise invalid(f"Expected a {name}, got bytes that are none") from None
    return msgspec.convert(MessageToDict(message, preserving_proto_field_name=True), kind)


def written_message(name: str, content: object) -> bytes:
    """Write the message called `name` with `content`: structs, mappings, sequences and plain values."""
    return ParseDict(msgspec.to_builtins(content), message_class(f"inference.{name}")()).SerializeToString()
