"""One inference request of an HTTP protocol: how its body is decoded and its response encoded."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST

from tasks.inference.error import InferenceError
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse

JSON = "application/json"
EVENT_STREAM = "text/event-stream"

PROMETHEUS = CONTENT_TYPE_LATEST.removesuffix("; charset=utf-8")
"""The media type of Prometheus' text format, without the charset, which Litestar adds to every text."""


class RequestHead(msgspec.Struct, frozen=True, kw_only=True):
    """What an inference reads from the request line and the headers.

    Attributes:
        target: the segment of the path with the model's name; empty if the path has none.
        version: the version in the path, None if it has none.
        label: the label of a version in the path, None if it has none.
        headers: names in lower case.
        query: the query of the URL, still encoded; only for endpoints that declare one.
    """

    target: str
    version: str | None = None
    label: str | None = None
    headers: Mapping[str, str]
    query: str = ""


class HttpResponse(msgspec.Struct, frozen=True, kw_only=True):
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
        """Decode the body, in a worker. Raise InferenceError naming the invalid field."""
        ...

    def encode(self, response: InferenceResponse, /) -> HttpResponse:
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
    encode: Callable[..., HttpResponse]
    map_error_path: Callable[[InferenceError], InferenceError] = _unchanged


class HandledCall(CodecCall, frozen=True, kw_only=True, eq=False):
    """An inference that the workers of inferences do not answer, such as one with an explanation of its answer.

    `handle` answers it; it is called as `Engine.handle`, with the engine before those arguments, and decides what
    `encode` gets.
    """

    handle: Callable[..., Awaitable[HttpResponse]]


class Stream(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An inference whose answer is sent in parts, the first one before the status is known to be 200.

    Attributes:
        outputs: the parts; empty ones are left out. Nothing happens before the first one is requested.
        encode_error: encodes an error behind the first part.
        encode_end: returns what follows the last part.
        map_error_path: returns an error with its path in terms of the protocol.
    """

    outputs: AsyncGenerator[bytes]
    encode_error: Callable[[InferenceError], bytes]
    encode_end: Callable[[], bytes] = bytes
    media_type: str = EVENT_STREAM
    map_error_path: Callable[[InferenceError], InferenceError] = _unchanged


def media_type_of(content_type: str) -> str:
    """Return `content_type` without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


StartedCall = InferenceCall | Stream
