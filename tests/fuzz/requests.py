"""Define requests: over HTTP, over gRPC, or raw bytes."""

from typing import Literal, TypeAlias

import msgspec

Port: TypeAlias = Literal["http", "tensorflow-serving", "grpc"]

HEADER_LENGTH = b"inference-header-content-length"


class Http(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP request with valid framing and any content.

    Attributes:
        protocol: protocol of the golden case.
        port: port of the server.
        method: HTTP method.
        target: encoded path and query.
        headers: all headers except those for framing.
        head: the body, or V2's JSON before the bytes of tensors.
        tail: the bytes of tensors.
        header_length: declared length of `head`; None for no header, "true" for the correct value.
        chunks: sizes of body chunks, repeated; Content-Length is used when empty.
    """

    protocol: str
    port: Port = "http"
    method: bytes
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    head: bytes = b""
    tail: bytes = b""
    header_length: bytes | None = None
    chunks: tuple[int, ...] = ()

    @property
    def body(self) -> bytes:
        """Return the complete body."""
        return self.head + self.tail


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A gRPC call.

    Attributes:
        protocol: `kserve-v2-grpc` or `grps-grpc`.
        method: its full name, `/package.Service/Method`.
        messages: serialized messages; several if requests are streamed.
        metadata: metadata of the call.
        streams: whether requests and responses are streamed.
        timeout: timeout in seconds.
        compressed: whether messages are compressed with gzip.
    """

    protocol: str
    method: str
    messages: tuple[bytes, ...]
    metadata: tuple[tuple[str, str | bytes], ...] = ()
    streams: tuple[bool, bool] = (False, False)
    timeout: float = 60
    compressed: bool = False


class Bytes(msgspec.Struct, frozen=True, kw_only=True):
    """Arbitrary bytes. The client half-closes after them, and the server may close without a response."""

    protocol: str
    port: Port
    data: bytes
    half_close: bool = True


Request: TypeAlias = Http | Call | Bytes


def encode_request(request: Http) -> bytes:
    """Encode a request."""
    headers = list(request.headers)
    if request.header_length is not None:
        length = str(len(request.head)).encode() if request.header_length == b"true" else request.header_length
        headers.append((HEADER_LENGTH, length))
    body = request.body
    if request.chunks:
        headers.append((b"transfer-encoding", b"chunked"))
        body = _chunked(body, request.chunks)
    elif body or request.method not in (b"GET", b"HEAD", b"OPTIONS", b"DELETE"):
        headers.append((b"content-length", str(len(body)).encode()))
    lines = [b"%s %s HTTP/1.1" % (request.method, request.target), *(b"%s: %s" % header for header in headers)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _chunked(body: bytes, sizes: tuple[int, ...]) -> bytes:
    parts: list[bytes] = []
    start = 0
    while start < len(body):
        size = sizes[len(parts) % len(sizes)]
        part = body[start : start + size]
        parts.append(b"%x\r\n%s\r\n" % (len(part), part))
        start += size
    return b"".join(parts) + b"0\r\n\r\n"
