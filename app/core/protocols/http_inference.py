"""Bodies of requests, compressed or not, and answers for errors."""

import asyncio
import zlib

from litestar import Response

from app.core.engine.engine import Engine
from app.core.protocols.inference_call import HttpResponse
from app.core.protocols.protocol import HttpProtocol, HttpRequest
from app.core.protocols.request_info import RETRY_AFTER
from app.core.protocols.status import http_status
from tasks.inference.error import InferenceError, invalid, quote_value
from tasks.inference.limits import too_large

# zlib's window bits: 16 more for gzip's header; deflate is zlib's own format (RFC 9110, 8.4.1).
_WINDOW_BITS = {"gzip": zlib.MAX_WBITS + 16, "x-gzip": zlib.MAX_WBITS + 16, "deflate": zlib.MAX_WBITS}


async def read_body(request: HttpRequest, engine: Engine) -> bytes:
    """Return the decompressed body. Raise InferenceError as `decompress`."""
    body = await request.body()
    return await decompress_body(body, request.headers.get("content-encoding", ""), engine.limits.max_request_bytes)


async def decompress_body(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Return a body without its encoding, the value of Content-Encoding. A thread decompresses it.

    Raise InferenceError as `decompress`.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    return await asyncio.to_thread(decompress, body, encoding, max_bytes)


def decompress(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Decompress `body`, with at most `max_bytes` bytes in memory.

    Raise INVALID_REQUEST for an unknown encoding, truncated or invalid data, and data behind the stream; TOO_LARGE for
    more than `max_bytes` bytes.
    """
    window_bits = _WINDOW_BITS.get(encoding)
    if window_bits is None:
        raise invalid(f"Expected gzip, deflate or identity, got {quote_value(encoding)}", "Content-Encoding")
    stream = zlib.decompressobj(window_bits)
    try:
        content = stream.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise invalid(f"The body is not {encoding}: {error}", "Content-Encoding") from None
    if len(content) > max_bytes:
        raise too_large(max_bytes, "bytes after decompression (--max-request-bytes)")
    if not stream.eof:
        raise invalid(f"The body is truncated {encoding} data", "Content-Encoding")
    if trailing := len(stream.unused_data.rstrip(b"\0")):
        raise invalid(f"Expected one {encoding} stream, got {trailing} bytes behind it", "Content-Encoding")
    return content


def error_response(protocol: HttpProtocol, error: InferenceError) -> HttpResponse:
    """Return the answer of a protocol for an error."""
    headers = () if error.retry_after is None else ((RETRY_AFTER, str(error.retry_after)),)
    return HttpResponse(content=protocol.error_body(error), status=http_status(error.kind), headers=headers)


def to_response(answer: HttpResponse) -> Response[bytes]:
    """Return the response of the framework for an answer."""
    return Response(
        answer.content, status_code=answer.status, headers=dict(answer.headers), media_type=answer.media_type
    )
