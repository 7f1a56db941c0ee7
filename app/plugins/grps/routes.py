"""The REST routes of GRPS, under ``/grps/v1``."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from litestar import Response

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from app.core.hooks import Protocols
from app.core.protocols.http_inference import read_body
from app.core.protocols.inference_call import CodecCall, HttpResponse, RequestHead, Stream, media_type_of
from app.core.protocols.protocol import (
    Endpoint,
    HttpProtocol,
    HttpRequest,
    Method,
    QueryParameter,
    infer_endpoint,
    json_response,
)
from app.core.settings.server import ServerSettings
from app.plugins.grps.calls import PLAIN_CALLS, PlainCall, error_message, failure_message
from app.plugins.grps.codec import GrpsCodec, queue_of
from app.plugins.grps.json_messages import encode_json, encode_streamed, read_head, read_json_message
from app.plugins.grps.messages import GrpsMessage, WireMessage, WireRejection
from app.plugins.grps.servicer import GrpsGrpc
from metadata.request import METADATA_PARAMETER as METADATA
from tasks.inference.error import InferenceError, invalid, quote_value
from tasks.inference.limits import Limits
from tasks.inference.response import InferenceResponse

_JSON = "application/json"
_BINARY = "application/octet-stream"
_STREAMING = "streaming"
_MAX_INLINE_BYTES = 1024 * 1024
"""Longer bodies are not scanned in the event loop."""
_HEAD = re.compile(rb'"(?:model|streaming)"')

_QUERY = (
    QueryParameter(name="model", summary="The model; the only or default model if absent"),
    QueryParameter(name=_STREAMING, summary="Whether to stream the response", schema={"type": "boolean"}),
    QueryParameter(name="return-ndarray", summary="Whether to respond with an ndarray", schema={"type": "boolean"}),
)
_METHODS: Mapping[bool, Sequence[Method]] = {False: ("GET", "POST"), True: ("POST",)}
"""The methods of a call, by whether it reads a message."""


class _Query(msgspec.Struct, frozen=True):
    """The query of a request. Its parameters are numbers, booleans and texts; repeated ones are lists of texts."""

    model: str = ""
    streaming: bool = False
    as_ndarray: bool = False
    parameters: Mapping[str, object] = {}


class Grps(HttpProtocol):
    """GRPS with the conventions of its Python server: errors have the HTTP status that their message contains."""

    name = "grps"
    prefixes = ("/grps/v1",)

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        def start(
            head: RequestHead, body: bytes, context: RequestContext
        ) -> CodecCall | Stream | Coroutine[Any, Any, CodecCall | Stream]:
            is_json = media_type_of(head.headers.get("content-type", "")) == _JSON
            if is_json and len(body) > _MAX_INLINE_BYTES:
                return start_later(head, body, context)
            return begin(head, body, context, *(read_head(body) if is_json and _HEAD.search(body) else ("", False)))

        async def start_later(head: RequestHead, body: bytes, context: RequestContext) -> CodecCall | Stream:
            return begin(head, body, context, *await asyncio.to_thread(read_head, body))

        def begin(
            head: RequestHead, body: bytes, context: RequestContext, name: str, streams: bool
        ) -> CodecCall | Stream:
            query = _read_query(head.query)
            model = queue_of(engine.registry, name or query.model)
            context.model_name = model or query.model
            if streams or query.streaming or head.headers.get(_STREAMING, "").lower() == "true":
                return _start_stream(engine, head, body, query, context, model)
            return _start(_codec(engine, head, body, query), query, model)

        plain_endpoints = [
            Endpoint(
                f"/grps/v1/{call.path}",
                call.summary,
                method=method,
                handle=partial(_answer_plain, engine, call),
                body=WireMessage if method == "POST" else None,
                body_required=call.reads_message,
                answer=WireMessage,
                error=WireRejection,
                failures=call.failures,
                permission=call.permission,
                changes_state=call.permission == "admin",
            )
            for call in PLAIN_CALLS.values()
            for method in _METHODS[call.reads_message]
        ]
        inference = infer_endpoint(
            "/grps/v1/infer/predict",
            "Infer with a model",
            queue_model=lambda head: queue_of(engine.registry, _read_query(head.query).model),
            start=start,
            query=_QUERY,
            body=WireMessage,
            answer=WireMessage,
            error=WireRejection,
            media_types=(_BINARY,),
        )
        return [*plain_endpoints, inference]

    def error_body(self, error: InferenceError, /) -> bytes:
        return encode_json(error_message(error))

    def routing_error(self, status: int, message: str, /) -> bytes:
        return encode_json(failure_message(status, message))


def protocols(_: ServerSettings) -> Protocols:
    """Return the protocols of the main port and of gRPC."""
    return Protocols(http=(Grps(),), grpc=(GrpsGrpc(),))


async def _answer_plain(engine: Engine, call: PlainCall, request: HttpRequest) -> Response[bytes]:
    body = await read_body(request, engine) if call.reads_message else b""
    return json_response(await call.respond(engine, lambda: read_json_message(body, engine.limits)[0], encode_json))


def _codec(engine: Engine, head: RequestHead, body: bytes, query: _Query) -> GrpsCodec:
    """Return the codec of a request.

    Raise INVALID_REQUEST for another media type, an empty body, or metadata in the query, which could not be returned.
    """
    if METADATA in query.parameters:
        raise invalid("Expected metadata in gmap, so that it can be returned with the response", "query.metadata")
    read_message = _message_reader(head.headers.get("content-type", ""), body, engine.limits)
    return GrpsCodec(engine.registry, read_message, query.model, query.parameters)


def _start(codec: GrpsCodec, query: _Query, model: str) -> CodecCall:
    """Return an inference in the queue of `model`. Bytes without a type are the answer of a model of bytes."""

    def encode(response: InferenceResponse) -> HttpResponse:
        message = codec.encode(response)
        if message.WhichOneof("data_oneof") == "bin_data" and not query.as_ndarray:
            return HttpResponse(content=message.bin_data, media_type=_BINARY)
        return HttpResponse(content=encode_json(message, as_ndarray=query.as_ndarray))

    return CodecCall(model_name=model, decode=codec.decode, encode=encode, map_error_path=codec.map_error_path)


def _start_stream(
    engine: Engine, head: RequestHead, body: bytes, query: _Query, context: RequestContext, model: str
) -> Stream:
    if query.as_ndarray:
        raise invalid("Expected streaming or return-ndarray, got both", "query")
    codec = _codec(engine, head, body, query)
    return Stream(
        outputs=codec.stream(engine, context, model, encode_streamed),
        encode_error=lambda error: encode_streamed(error_message(error)),
        media_type=_BINARY,
        map_error_path=codec.map_error_path,
    )


def _read_query(encoded: str) -> _Query:
    texts: dict[str, list[str]] = {}
    for name, text in parse_qsl(encoded, keep_blank_values=True):
        texts.setdefault(name, []).append(text)
    model, streaming, as_ndarray = (texts.pop(parameter.name, [""])[0] for parameter in _QUERY)
    return _Query(
        model=model,
        streaming=streaming.lower() == "true",
        as_ndarray=as_ndarray.lower() == "true",
        parameters={name: _value(values[0]) if len(values) == 1 else values for name, values in texts.items()},
    )


def _value(text: str) -> object:
    try:
        return msgspec.json.decode(text, type=bool | int | float)
    except msgspec.DecodeError:
        return text


def _message_reader(content_type: str, body: bytes, limits: Limits) -> Callable[[], tuple[Any, bool]]:
    media_type = media_type_of(content_type)
    if media_type not in (_JSON, _BINARY):
        raise invalid(
            f"Expected {_JSON} or {_BINARY}, got {quote_value(content_type) if content_type else 'none'}",
            "Content-Type",
        )
    if not body:
        raise invalid("Expected a body, got an empty one")
    if media_type == _JSON:
        return lambda: read_json_message(body, limits)
    return lambda: (GrpsMessage(bin_data=body), False)
