"""Bodies of requests, compressed or not, and answers for errors."""

import asyncio
import re
import zlib

from litestar import Response

from app.core.engine.engine import Engine
from app.core.protocols.inference_call import HttpResponse
from app.core.protocols.protocol import HttpProtocol, HttpRequest
from app.core.protocols.request_info import RETRY_AFTER
from app.core.protocols.status import http_status
from tasks.inference.error import InferenceError, invalid, quote_value
from tasks.inference.limits import too_large

_GZIP_BITS = zlib.MAX_WBITS + 16
"""zlib's window bits: 16 more are gzip's header, and negative ones no header."""
_PIECE_BYTES = 64 * 1024
_MAX_MEMBERS = 1000
_PADDING = re.compile(rb"\0+")


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

    A body in gzip may have several members (RFC 1952). Clients send deflate as zlib's format (RFC 9110, 8.4.1), or
    without its header. Raise INVALID_REQUEST for an unknown encoding, truncated or invalid data, data behind the
    stream, and too many members; TOO_LARGE for more than `max_bytes` bytes.
    """
    if encoding in ("gzip", "x-gzip"):
        window_bits, max_members = _GZIP_BITS, _MAX_MEMBERS
    elif encoding == "deflate":
        has_header = len(body) > 1 and body[0] & 15 == zlib.DEFLATED and int.from_bytes(body[:2], "big") % 31 == 0
        window_bits, max_members = zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS, 1
    else:
        raise invalid(f"Expected gzip, deflate or identity, got {quote_value(encoding)}", "Content-Encoding")
    content, position = bytearray(), 0
    for _ in range(max_members):
        stream = zlib.decompressobj(window_bits)
        while not stream.eof:
            piece = body[position : position + _PIECE_BYTES]
            if not piece:
                raise invalid(f"The body is truncated {encoding} data", "Content-Encoding")
            try:
                content += stream.decompress(piece, max_bytes + 1 - len(content))
            except zlib.error as error:
                raise invalid(f"The body is not {encoding}: {error}", "Content-Encoding") from None
            if len(content) > max_bytes:
                raise too_large(max_bytes, "bytes after decompression (--max-request-bytes)")
            position += len(piece) - len(stream.unused_data)
        if padding := _PADDING.match(body, position):
            position = padding.end()
        if position == len(body):
            return bytes(content)
    message = f"Expected at most {max_members:,} {encoding} streams, got {len(body) - position} bytes behind them"
    raise invalid(message, "Content-Encoding")


def error_response(protocol: HttpProtocol, error: InferenceError) -> HttpResponse:
    """Return the answer of a protocol for an error."""
    headers = () if error.retry_after is None else ((RETRY_AFTER, str(error.retry_after)),)
    return HttpResponse(content=protocol.error_body(error), status=http_status(error.kind), headers=headers)


def to_response(answer: HttpResponse) -> Response[bytes]:
    """Return the response of the framework for an answer."""
    return Response(
        answer.content, status_code=answer.status, headers=dict(answer.headers), media_type=answer.media_type
    )
