"""Requests that arrive through the application: read and decompress bodies, answer inferences, stream responses."""

import asyncio
import zlib
from collections.abc import AsyncGenerator, Callable

from litestar import Response
from litestar.background_tasks import BackgroundTask
from litestar.response import Stream

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from app.core.protocols.inference_call import HttpAnswer, InferenceCall, InferenceHead
from app.core.protocols.protocol import Endpoint, HttpProtocol, HttpRequest, report_refusals
from app.core.protocols.request_info import RETRY_AFTER, read_request_info
from app.core.protocols.status import http_status
from tasks.inference.error import InferenceError, invalid, quote_value
from tasks.inference.limits import too_large

# zlib's window bits: 16 more for gzip's header; deflate is zlib's own format (RFC 9110, 8.4.1).
_WINDOW_BITS = {"gzip": zlib.MAX_WBITS + 16, "x-gzip": zlib.MAX_WBITS + 16, "deflate": zlib.MAX_WBITS}

EVENT_STREAM = "text/event-stream"
# Proxies and caches must forward each part at once.
_UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


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

    `queued` is whether the request waits in the queue of inferences; only explanations do not.

    Raises:
        InferenceError: OVERLOADED, before the body is read, while the queue is full; as `decompress`.
    """
    if queued:
        engine.check_capacity(context, model_name)
    with report_refusals(engine, context, model_name):
        return await read_body(request, engine)


def decompress(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Decompress `body`, with at most `max_bytes` bytes in memory.

    Raises:
        InferenceError: INVALID_REQUEST for an unknown encoding, truncated or invalid data, and data behind the stream;
            TOO_LARGE for more than `max_bytes` bytes.
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
        raise too_large(max_bytes, "bytes after decompression")
    if not stream.eof:
        raise invalid(f"The body is truncated {encoding} data", "Content-Encoding")
    if trailing := len(stream.unused_data.rstrip(b"\0")):
        raise invalid(f"Expected one {encoding} stream, got {trailing} bytes behind it", "Content-Encoding")
    return content


async def answer_inference(engine: Engine, protocol: str, endpoint: Endpoint, request: HttpRequest) -> Response[bytes]:
    """Answer a request to `endpoint`, which has no `handle`.

    Raises:
        InferenceError: for every failure, with the path in terms of the protocol.
    """
    context, head = read_request_info(request, protocol), read_head(request)
    with report_refusals(engine, context, head.target):
        model_name = endpoint.queue_model(head.target) if endpoint.queue_model is not None else ""
    body = await read_inference_body(request, engine, context, model_name)
    with report_refusals(engine, context, head.target):
        call = None if endpoint.start is None else endpoint.start(head, body, context)
    if call is None:
        raise TypeError(f"{endpoint.path} has no handle")
    return await answer_call(engine, context, call)


async def answer_call(engine: Engine, context: RequestContext, call: InferenceCall) -> Response[bytes]:
    """Answer the inference of `call`.

    Raises:
        InferenceError: for every failure, with the path in terms of the protocol.
    """
    try:
        return to_response(await engine.handle(context, call.model_name, call.decode, call.encode))
    except InferenceError as error:
        raise call.map_error_path(error) from None


def error_answer(protocol: HttpProtocol, error: InferenceError) -> HttpAnswer:
    """Return the answer of a protocol for an error."""
    headers = () if error.retry_after is None else ((RETRY_AFTER, str(error.retry_after)),)
    return HttpAnswer(content=protocol.error_body(error), status=http_status(error.kind), headers=headers)


def read_head(request: HttpRequest) -> InferenceHead:
    """Return the head of a request."""
    path = request.path_params
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.scope["headers"]}
    query = request.scope["query_string"].decode(errors="replace")
    return InferenceHead(target=path.get("target", ""), version=path.get("version"), headers=headers, query=query)


def to_response(answer: HttpAnswer) -> Response[bytes]:
    """Return the response of the application for an answer."""
    return Response(
        answer.content, status_code=answer.status, headers=dict(answer.headers), media_type=answer.media_type
    )


async def stream_call(
    call: InferenceCall,
    outputs: AsyncGenerator[bytes],
    encode_error: Callable[[InferenceError], bytes],
    encode_end: Callable[[], bytes] = lambda: b"",
    media_type: str = EVENT_STREAM,
) -> Stream:
    """Return a response that streams `outputs`, and after them the result of `encode_end`; empty ones are left out.

    Raises:
        InferenceError: an error before the first output. A later one ends the response with the result of
            `encode_error`.
    """
    try:
        first_output = await anext(outputs)
    except InferenceError as error:
        raise call.map_error_path(error) from None

    async def parts() -> AsyncGenerator[bytes]:
        try:
            if first_output:
                yield first_output
            async for output in outputs:
                if output:
                    yield output
            end = encode_end()
        except InferenceError as error:
            end = encode_error(call.map_error_path(error))
        if end:
            yield end

    async def close() -> None:
        await outputs.aclose()

    # Litestar stops iterating when the client disconnects; close the generator at once, not at garbage collection.
    return Stream(parts(), media_type=media_type, headers=_UNBUFFERED, background=BackgroundTask(close))
