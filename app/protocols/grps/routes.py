"""The REST routes of GRPS, under ``/grps/v1``."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from litestar import Response

from app.engine.engine import Engine
from app.engine.request_context import RequestContext
from app.engine.streams.text_stream import Chunk
from app.protocols.grps import calls
from app.protocols.grps.codec import PredictCodec
from app.protocols.grps.error_messages import error_message, failure_message
from app.protocols.grps.json_decoder import read_json_message
from app.protocols.grps.json_encoder import encode_json, encode_streamed
from app.protocols.grps.messages import GrpsMessage
from app.protocols.grps.wire import WireMessage, WireRefusal
from app.protocols.http_inference import read_head, start_call, to_response
from app.protocols.inference_call import HttpAnswer, InferenceHead
from app.protocols.media_type import media_type_of
from app.protocols.permission import Permission
from app.protocols.protocol import (
    INFER_FAILURES,
    Endpoint,
    HttpRequest,
    Method,
    QueryParameter,
    StartCall,
    json_response,
)
from app.protocols.request_body import read_body, read_inference_body
from app.protocols.request_info import read_request_info
from app.protocols.streamed_response import streamed_response
from metadata.entry import METADATA_PARAMETER as METADATA
from tasks.inference.error import InferenceError, invalid, quote_value
from tasks.inference.limits import Limits
from tasks.inference.response import InferenceResponse

__all__ = ("Grps",)

_JSON = "application/json"
_BINARY = "application/octet-stream"
_QUERY = (
    QueryParameter(name="model", summary="The model; the only or default model if absent"),
    QueryParameter(name="streaming", summary="Whether to stream the response", schema={"type": "boolean"}),
    QueryParameter(name="return-ndarray", summary="Whether to respond with an ndarray", schema={"type": "boolean"}),
)
_QUERY_NAMES = frozenset(parameter.name for parameter in _QUERY)

Handle = Callable[[HttpRequest], Awaitable[Response[Any]]]


class Grps:
    """GRPS with the conventions of its Python server: errors have the HTTP status that their message contains."""

    name = "grps"
    prefixes = ("/grps/v1",)

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        def json_handler(operation: Callable[[], Any]) -> Handle:
            async def handle(_: HttpRequest) -> Response[bytes]:
                return json_response(encode_json(operation()))

            return handle

        async def server_metadata(_: HttpRequest) -> Response[bytes]:
            return json_response(await asyncio.to_thread(lambda: encode_json(calls.server_metadata(engine))))

        async def model_metadata(request: HttpRequest) -> Response[bytes]:
            body = await read_body(request, engine)

            def describe() -> bytes:
                message, _ = read_json_message(body, engine.limits)
                return encode_json(calls.model_metadata(engine, message))

            return json_response(await asyncio.to_thread(describe))

        async def predict(request: HttpRequest) -> Response[Any]:
            return await self._predict(engine, request)

        def start(head: InferenceHead, body: bytes, _: RequestContext) -> _Call:
            return _Call(engine, head, body)

        online, offline = (json_handler(lambda flag=flag: calls.set_online(engine, flag)) for flag in (True, False))
        ready = json_handler(lambda: calls.ready(engine))
        operations: Mapping[str, tuple[str, Handle, Permission, Sequence[int]]] = {
            "health/online": ("Let load balancers send requests", online, "admin", ()),
            "health/offline": ("Stop load balancers from sending requests", offline, "admin", ()),
            "health/live": ("Whether the server is alive", json_handler(calls.live), "open", ()),
            "health/ready": ("Whether load balancers may send requests", ready, "open", (503,)),
            "metadata/server": ("The server and its models, in YAML", server_metadata, "infer", ()),
        }
        methods: tuple[Method, ...] = ("GET", "POST")
        endpoints = [
            self._endpoint(method, path, handle, summary, failures, permission)
            for path, (summary, handle, permission, failures) in operations.items()
            for method in methods
        ]
        metadata = ("POST", "metadata/model", model_metadata, "One model, in YAML", (400, 404, 413))
        endpoints.append(self._endpoint(*metadata, permission="infer"))
        inference = ("POST", "infer/predict", predict, "Infer with a model", INFER_FAILURES)
        endpoints.append(
            self._endpoint(*inference, permission="infer", media_types=(_BINARY,), query=_QUERY, queue=str, start=start)
        )
        return endpoints

    def error_body(self, error: InferenceError, /) -> bytes:
        return encode_json(error_message(error))

    def routing_error(self, status: int, message: str, /) -> bytes:
        return encode_json(failure_message(status, message))

    def _endpoint(
        self,
        method: Method,
        path: str,
        handle: Handle,
        summary: str,
        failures: Sequence[int],
        permission: Permission,
        media_types: Sequence[str] = (),
        query: Sequence[QueryParameter] = (),
        queue: Callable[[str], str] | None = None,
        start: StartCall | None = None,
    ) -> Endpoint:
        return Endpoint(
            method=method,
            path=f"{self.prefixes[0]}/{path}",
            handle=handle,
            start=start,
            summary=summary,
            query=query,
            body=WireMessage if method == "POST" else None,
            answer=WireMessage,
            refusal=WireRefusal,
            media_types=media_types,
            failures=failures,
            permission=permission,
            queue_model=queue,
        )

    async def _predict(self, engine: Engine, request: HttpRequest) -> Response[Any]:
        context = read_request_info(request, self.name)
        model = request.query_params.get("model", "")
        streaming, as_ndarray = _flag(request, "streaming"), _flag(request, "return-ndarray")
        try:
            if streaming and as_ndarray:
                raise invalid("Expected streaming or return-ndarray, got both", "query")
            parameters = _parameters(request)
        except InferenceError as error:
            raise engine.report_refused(context, error, model) from None
        body = await read_inference_body(request, engine, context, model)

        def start(head: InferenceHead, body: bytes, _: RequestContext) -> _Call:
            return _Call(engine, head, body, model, parameters, as_ndarray=as_ndarray)

        call = start_call(engine, start, read_head(request), body, context, model)
        try:
            if streaming:
                outputs = engine.stream_outputs(context, model, call.decode, *_encoders(call))
                return await _stream_response(call, outputs)
            return to_response(await engine.handle(context, model, call.decode, call.encode))
        except InferenceError as error:
            raise call.map_error_path(error) from None


class _Call:
    """One inference. Bytes without a type are the answer of a model that returns bytes."""

    def __init__(
        self,
        engine: Engine,
        head: InferenceHead,
        body: bytes,
        model: str = "",
        parameters: Mapping[str, object] | None = None,
        *,
        as_ndarray: bool = False,
    ) -> None:
        self.model_name = model
        self._as_ndarray = as_ndarray
        self.codec = PredictCodec(
            engine.registry,
            _message_reader(head.headers.get("content-type", ""), body, engine.limits),
            model,
            parameters,
        )
        self.decode = self.codec.decode
        self.map_error_path = self.codec.map_error_path

    def encode(self, response: InferenceResponse, /) -> HttpAnswer:
        message = self.codec.encode(response)
        if message.WhichOneof("data_oneof") == "bin_data" and not self._as_ndarray:
            return HttpAnswer(content=message.bin_data, media_type=_BINARY)
        return HttpAnswer(content=encode_json(message, as_ndarray=self._as_ndarray))


def _flag(request: HttpRequest, name: str) -> bool:
    return request.query_params.get(name, "").lower() == "true"


def _parameters(request: HttpRequest) -> Mapping[str, object]:
    """Return the parameters in the query: numbers, booleans and texts; repeated parameters become lists of texts.

    Raises:
        InferenceError: INVALID_REQUEST for metadata, which could not be returned.
    """
    parameters: dict[str, object] = {}
    for name in request.query_params:
        if name in _QUERY_NAMES:
            continue
        if name == METADATA:
            raise invalid("Expected metadata in gmap, so that it can be returned with the response", "query.metadata")
        values = request.query_params.getall(name)
        parameters[name] = _value(values[0]) if len(values) == 1 else list(values)
    return parameters


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


def _encoders(call: _Call) -> tuple[Callable[[InferenceResponse], bytes], Callable[[Chunk], bytes | None]]:
    def encode_chunk(chunk: Chunk) -> bytes | None:
        message = call.codec.encode_chunk(chunk)
        return None if message is None else encode_streamed(message)

    return lambda response: encode_streamed(call.codec.encode(response)), encode_chunk


async def _stream_response(call: _Call, outputs: AsyncGenerator[bytes]) -> Response[Any]:
    """Return a streaming response. An error before the first message is raised; a later one becomes a message."""
    first_output = await anext(outputs)

    async def stream() -> AsyncGenerator[bytes]:
        yield first_output
        try:
            async for output in outputs:
                yield output
        except InferenceError as error:
            yield encode_streamed(error_message(call.map_error_path(error)))

    return streamed_response(stream(), outputs, _BINARY)
