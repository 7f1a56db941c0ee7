"""Answer an inference request that arrives through the application: with its body read, decompressed and checked."""

from collections.abc import Callable
from typing import TypeVar

from litestar import Response

from app.engine.engine import Engine
from app.engine.request_context import RequestContext
from app.protocols.inference_call import HttpAnswer, InferenceHead
from app.protocols.protocol import Endpoint, HttpProtocol, HttpRequest, StartCall
from app.protocols.request_body import read_inference_body
from app.protocols.request_info import RETRY_AFTER, read_request_info
from app.protocols.status import http_status
from tasks.inference.error import InferenceError

CallT = TypeVar("CallT")


async def answer_inference(
    engine: Engine, protocol: str, endpoint: Endpoint, start: StartCall, request: HttpRequest
) -> Response[bytes]:
    """Answer a request to `endpoint`, whose `start` is given.

    Raises:
        InferenceError: for every failure, with the path in terms of the protocol.
    """
    context, head = read_request_info(request, protocol), read_head(request)
    try:
        model_name = endpoint.queue_model(head.target) if endpoint.queue_model is not None else ""
    except InferenceError as error:
        raise engine.report_refused(context, error, head.target) from None
    body = await read_inference_body(request, engine, context, model_name)
    call = start_call(engine, start, head, body, context, head.target)
    try:
        return to_response(await engine.handle(context, call.model_name, call.decode, call.encode))
    except InferenceError as error:
        raise call.map_error_path(error) from None


def start_call(
    engine: Engine,
    start: Callable[[InferenceHead, bytes, RequestContext], CallT],
    head: InferenceHead,
    body: bytes,
    context: RequestContext,
    model_name: str,
) -> CallT:
    """Return the call of a request; report a refusal.

    Raises:
        InferenceError: if it is refused.
    """
    try:
        return start(head, body, context)
    except InferenceError as error:
        raise engine.report_refused(context, error, model_name) from None


def error_answer(protocol: HttpProtocol, error: InferenceError) -> HttpAnswer:
    """Return the answer of a protocol for an error."""
    headers = () if error.retry_after is None else ((RETRY_AFTER, str(error.retry_after)),)
    return HttpAnswer(content=protocol.error_body(error), status=http_status(error.kind), headers=headers)


def read_head(request: HttpRequest) -> InferenceHead:
    """Return the head of a request."""
    path = request.path_params
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.scope["headers"]}
    return InferenceHead(target=path.get("target", ""), version=path.get("version"), headers=headers)


def to_response(answer: HttpAnswer) -> Response[bytes]:
    """Return the response of the application for an answer."""
    return Response(
        answer.content, status_code=answer.status, headers=dict(answer.headers), media_type=answer.media_type
    )
