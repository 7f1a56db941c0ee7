"""Read a request's body, decompressed if necessary."""

import asyncio
import zlib

from app.engine.engine import Engine
from app.engine.events import RequestInfo
from app.protocols.protocol import HttpRequest
from tasks.exchange.error import ErrorKind, InferenceError, brief, invalid

__all__ = ("body_of", "body_to_infer", "decompressed")

# zlib's window bits: 16 more for gzip's header; deflate is zlib's own format (RFC 9110, 8.4.1).
_WINDOW_BITS = {"gzip": zlib.MAX_WBITS + 16, "x-gzip": zlib.MAX_WBITS + 16, "deflate": zlib.MAX_WBITS}


async def body_of(request: HttpRequest, engine: Engine) -> bytes:
    """Return the decompressed body.

    Raises:
        InferenceError: as `decompressed`.
    """
    body = await request.body()
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("identity", ""):
        return body
    return await asyncio.to_thread(decompressed, body, encoding, engine.limits.max_request_bytes)


async def body_to_infer(
    request: HttpRequest, engine: Engine, caller: RequestInfo, model_name: str, *, queued: bool = True
) -> bytes:
    """Return the decompressed body of an inference request, and notify observers of errors.

    Args:
        request: the inference request.
        engine: the engine that handles it.
        caller: information about the request.
        model_name: the model that the request names.
        queued: whether the request waits in the queue of inferences; only explanations do not.

    Raises:
        InferenceError: OVERLOADED, before the body is read, while the queue is full; as `decompressed`.
    """
    if queued:
        engine.check_place(caller, model_name)
    try:
        return await body_of(request, engine)
    except InferenceError as error:
        raise engine.refused(caller, error, model_name) from None


def decompressed(body: bytes, encoding: str, most: int) -> bytes:
    """Decompress `body`, with at most `most` bytes in memory.

    Raises:
        InferenceError: UNSUPPORTED for an unknown encoding, TOO_LARGE for more than `most` bytes, INVALID_REQUEST for
            truncated or invalid data.
    """
    bits = _WINDOW_BITS.get(encoding)
    if bits is None:
        message = f"Expected gzip, deflate or identity, got {brief(encoding)}"
        raise InferenceError(ErrorKind.UNSUPPORTED, message, "Content-Encoding")
    stream = zlib.decompressobj(bits)
    try:
        content = stream.decompress(body, most + 1)
    except zlib.error as error:
        raise invalid(f"The body is not {encoding}: {error}", "Content-Encoding") from None
    if len(content) > most:
        message = f"Expected at most {most:,} bytes after decompression, got more"
        raise InferenceError(ErrorKind.TOO_LARGE, message)
    if not stream.eof:
        raise invalid(f"The body is truncated {encoding} data", "Content-Encoding")
    return content
