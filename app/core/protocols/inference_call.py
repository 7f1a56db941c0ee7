"""One inference request of an HTTP protocol: how its body is decoded and its response encoded."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST

from tasks.inference.error import InferenceError
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse

JSON = "application/json"

PROMETHEUS = CONTENT_TYPE_LATEST.removesuffix("; charset=utf-8")
"""The media type of Prometheus' text format, without the charset, which Litestar adds to every text."""


class InferenceHead(msgspec.Struct, frozen=True, kw_only=True):
    """What an inference reads from the request line and the headers.

    Attributes:
        target: the segment of the path with the model's name; empty if the path has none.
        version: the version in the path, None if it has none.
        headers: names in lower case.
        query: the query of the URL, still encoded; only for endpoints that declare one.
    """

    target: str
    version: str | None = None
    headers: Mapping[str, str]
    query: str = ""


class HttpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a response, its media type, status and further headers."""

    content: bytes
    media_type: str = JSON
    status: int = 200
    headers: Sequence[tuple[str, str]] = ()


class InferenceCall(Protocol):
    """The state of one request between its decoding and its encoding."""

    @property
    def model_name(self) -> str:
        """Return the model that the path names; empty if only the body has its name."""
        ...

    def decode(self) -> InferenceRequest:
        """Decode the body, in a worker.

        Raises:
            InferenceError: naming the invalid field.
        """
        ...

    def encode(self, response: InferenceResponse, /) -> HttpAnswer:
        """Encode the response, in a worker."""
        ...

    def map_error_path(self, error: InferenceError, /) -> InferenceError:
        """Return `error` with its path in terms of the protocol."""
        ...


def _unchanged(error: InferenceError) -> InferenceError:
    return error


class CodecCall(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An `InferenceCall` of functions, for a protocol whose encoding needs nothing from the request."""

    model_name: str
    decode: Callable[[], InferenceRequest]
    encode: Callable[[InferenceResponse], HttpAnswer]
    map_error_path: Callable[[InferenceError], InferenceError] = _unchanged


def media_type_of(content_type: str) -> str:
    """Return `content_type` without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()
