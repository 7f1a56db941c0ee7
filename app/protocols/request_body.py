"""Read a request's body, decompressed if necessary."""

import asyncio
import zlib

from app.engine.engine import Engine
from app.engine.request_context import RequestContext
from app.protocols.protocol import HttpRequest
from tasks.inference.error import ErrorKind, InferenceError, invalid, quote_value

# zlib's window bits: 16 more for gzip's header; deflate is zlib's own format (RFC 9110, 8.4.1).
_WINDOW_BITS = {"gzip": zlib.MAX_WBITS + 16, "x-gzip": zlib.MAX_WBITS + 16, "deflate": zlib.MAX_WBITS}


async def read_body(request: HttpRequest, engine: Engine) -> bytes:
    """Return the decompressed body.

    Raises:
        InferenceError: as `decompress`.
    """
    body = await request.body()
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("identity", ""):
        return body
    return await asyncio.to_thread(decompress, body, encoding, engine.limits.max_request_bytes)


async def read_inference_body(
    request: HttpRequest, engine: Engine, context: RequestContext, model_name: str, *, queued: bool = True
) -> bytes:
    """Return the decompressed body of an inference request, and notify observers of errors.

    Args:
        request: the inference request.
        engine: the engine that handles it.
        context: information about the request.
        model_name: the model that the request names.
        queued: whether the request waits in the queue of inferences; only explanations do not.

    Raises:
        InferenceError: OVERLOADED, before the body is read, while the queue is full; as `decompress`.
    """
    if queued:
        engine.check_capacity(context, model_name)
    try:
        return await read_body(request, engine)
    except InferenceError as error:
        raise engine.report_refused(context, error, model_name) from None


def decompress(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Decompress `body`, with at most `max_bytes` bytes in memory.

    Raises:
        InferenceError: INVALID_REQUEST for an unknown encoding, and for truncated or invalid data; TOO_LARGE for more
            than `max_bytes` bytes.
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
        message = f"Expected at most {max_bytes:,} bytes after decompression, got more"
        raise InferenceError(ErrorKind.TOO_LARGE, message)
    if not stream.eof:
        raise invalid(f"The body is truncated {encoding} data", "Content-Encoding")
    return content
