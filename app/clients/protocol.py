"""What a client of images knows of a protocol: where a model is, a request, and the records of an answer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pybase64

Records = Sequence[Mapping[str, object]]
Parameters = Mapping[str, object]

Client = Callable[[bytes, Parameters], Records]
"""Returns the records for an image and parameters, or raises InferenceClientError. Several threads call it."""


class HttpClientProtocol(msgspec.Struct, frozen=True, kw_only=True):
    """A protocol over HTTP.

    Attributes:
        name: the name in commands.
        path: returns the inference path for a model's name, percent-encoded, or empty for the only model.
        request: returns the JSON body for an image and parameters.
        records: extracts the records from the decoded answer.
        needs_model: whether the path names the model.
    """

    name: str
    path: Callable[[str], str]
    request: Callable[[bytes, Parameters], Mapping[str, Any]]
    records: Callable[[Any], Any]
    needs_model: bool = True


class GrpcClientProtocol(msgspec.Struct, frozen=True, kw_only=True):
    """A protocol over gRPC.

    Attributes:
        name: the name in commands.
        path: the path of the method.
        request: returns the message for a model's name, an image and parameters.
        response: the class of the answer.
        records: extracts the records from the answer.
    """

    name: str
    path: str
    request: Callable[[str, bytes, Parameters], Any]
    response: Any
    records: Callable[[Any], Any]
    needs_model: bool = True


class InferenceClientError(Exception):
    """One image was not answered, with the reason, and the HTTP status that says why: 500 if none does."""

    def __init__(self, reason: str, status: int = 500) -> None:
        super().__init__(reason)
        self.status = status


class ServerUnavailableError(InferenceClientError):
    """No image would be answered now: the server is unreachable or busy, rejects the client, or lacks the model."""


def read_elements(data: Any) -> Any:
    """Return the records of the only image: the output is a list of records, a list in a list, or one JSON text."""
    if len(data) == 1 and not isinstance(data[0], Mapping):
        return msgspec.json.decode(data[0]) if isinstance(data[0], str | bytes) else data[0]
    return data


def encode_base64(data: bytes) -> str:
    """Return base64 as text."""
    return pybase64.b64encode(data).decode()
