"""What is sent: over HTTP, over gRPC, or bytes as they are."""

from typing import Literal, TypeAlias

import msgspec

__all__ = ("HEADER_LENGTH", "Bytes", "Call", "Http", "Port", "Request", "as_wire")

Port: TypeAlias = Literal["http", "tensorflow-serving", "grpc"]

HEADER_LENGTH = b"inference-header-content-length"


class Http(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is well framed, whatever stands in it.

    Attributes:
        protocol: whose golden case it was made from.
        port: where it is sent.
        method: of HTTP.
        target: path and query, as they go over the wire.
        headers: all but those that frame the body.
        head: the body, or V2's JSON before the bytes of tensors.
        tail: the bytes of tensors.
        header_length: what is said of the length of `head`: nothing when None, the truth when "true".
        chunks: the sizes in which the body is sent, repeated; one piece of declared length when empty.
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
        """All of it."""
        return self.head + self.tail


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call of gRPC.

    Attributes:
        protocol: `kserve-v2-grpc` or `grps-grpc`.
        method: its full name, `/package.Service/Method`.
        messages: serialized; more than one where requests are streamed.
        metadata: beside them.
        streams: whether requests, and whether answers, are streamed.
        timeout: seconds that the call is given.
        compressed: whether messages are sent as gzip.
    """

    protocol: str
    method: str
    messages: tuple[bytes, ...]
    metadata: tuple[tuple[str, str | bytes], ...] = ()
    streams: tuple[bool, bool] = (False, False)
    timeout: float = 60
    compressed: bool = False


class Bytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that need not be HTTP. The sender half-closes behind them, and the server may hang up without an answer."""

    protocol: str
    port: Port
    data: bytes
    half_close: bool = True


Request: TypeAlias = Http | Call | Bytes


def as_wire(request: Http) -> bytes:
    """The bytes of a request."""
    headers = list(request.headers)
    if request.header_length is not None:
        said = str(len(request.head)).encode() if request.header_length == b"true" else request.header_length
        headers.append((HEADER_LENGTH, said))
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
