"""The REST routes of GRPS, under ``/grps/v1``."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from litestar import Response
from litestar.background_tasks import BackgroundTask
from litestar.response import Stream

from app.engine.engine import Engine
from app.engine.streaming import Piece
from app.protocols.caller import caller_of
from app.protocols.grps import calls
from app.protocols.grps.codec import PredictCall
from app.protocols.grps.failures import failed, failure
from app.protocols.grps.json_codec import read_json_message
from app.protocols.grps.json_writing import written_json, written_part
from app.protocols.grps.messages import GrpsMessage
from app.protocols.grps.wire import WireMessage, WireRefusal
from app.protocols.media_type import media_type_of
from app.protocols.permission import Permission
from app.protocols.protocol import INFER_FAILURES, Endpoint, HttpRequest, Method, QueryParameter, json_response
from app.protocols.request_body import body_of
from metadata.entry import PARAMETER as METADATA
from tasks.exchange.error import InferenceError, brief, invalid
from tasks.exchange.limits import Limits
from tasks.exchange.response import InferenceResponse

__all__ = ("Grps",)

_JSON = "application/json"
_BINARY = "application/octet-stream"
# Proxies and caches must forward each part at once.
_UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
_QUERY = (
    QueryParameter(name="model", summary="The model; the only or default model if absent"),
    QueryParameter(name="streaming", summary="Whether to stream the response", schema={"type": "boolean"}),
    QueryParameter(name="return-ndarray", summary="Whether to respond with an ndarray", schema={"type": "boolean"}),
)
_CONTROLS = frozenset(each.name for each in _QUERY)

Handle = Callable[[HttpRequest], Awaitable[Response[Any]]]


class Grps:
    """GRPS with the conventions of its Python server: errors have the HTTP status that their message contains."""

    name = "grps"
    prefix = "/grps/v1"

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        def json_handler(call: Callable[[], Any]) -> Handle:
            async def handle(_: HttpRequest) -> Response[bytes]:
                return json_response(written_json(call()))

            return handle

        async def server_metadata(_: HttpRequest) -> Response[bytes]:
            return json_response(await asyncio.to_thread(lambda: written_json(calls.server_metadata(engine))))

        async def model_metadata(request: HttpRequest) -> Response[bytes]:
            body = await body_of(request, engine)

            def describe() -> bytes:
                message, _ = read_json_message(body, engine.limits)
                return written_json(calls.model_metadata(engine, message))

            return json_response(await asyncio.to_thread(describe))

        async def predict(request: HttpRequest) -> Response[Any]:
            return await self._predict(engine, request)

        online, offline = (json_handler(lambda flag=flag: calls.set_online(engine, flag)) for flag in (True, False))
        ready = json_handler(lambda: calls.ready(engine))
        simple: Mapping[str, tuple[str, Handle, Permission, Sequence[int]]] = {
            "health/online": ("Let load balancers send requests", online, "admin", ()),
            "health/offline": ("Stop load balancers from sending requests", offline, "admin", ()),
            "health/live": ("Whether the server is alive", json_handler(calls.live), "open", ()),
            "health/ready": ("Whether load balancers may send requests", ready, "open", (503,)),
            "metadata/server": ("The server and its models, in YAML", server_metadata, "infer", ()),
        }
        methods: tuple[Method, ...] = ("GET", "POST")
        endpoints = [
            self._endpoint(method, path, handle, summary, failures, permission)
            for path, (summary, handle, permission, failures) in simple.items()
            for method in methods
        ]
        metadata = ("POST", "metadata/model", model_metadata, "One model, in YAML", (400, 404, 413))
        endpoints.append(self._endpoint(*metadata, permission="infer"))
        inference = ("POST", "infer/predict", predict, "Infer with a model", INFER_FAILURES)
        endpoints.append(
            self._endpoint(*inference, permission="infer", media_types=(_BINARY,), query=_QUERY, queue=str)
        )
        return endpoints

    def error_body(self, error: InferenceError, /) -> bytes:
        return written_json(failed(error))

    def routing_error(self, status: int, message: str, /) -> bytes:
        return written_json(failure(status, message))

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
    ) -> Endpoint:
        return Endpoint(
            method=method,
            path=f"{self.prefix}/{path}",
            handle=handle,
            summary=summary,
            query=query,
            body=WireMessage if method == "POST" else None,
            answer=WireMessage,
            refusal=WireRefusal,
            media_types=media_types,
            failures=failures,
            permission=permission,
            queue=queue,
        )

    async def _predict(self, engine: Engine, request: HttpRequest) -> Response[Any]:
        caller = caller_of(request, self.name)
        model = request.query_params.get("model", "")
        streaming, as_ndarray = _flag(request, "streaming"), _flag(request, "return-ndarray")
        try:
            if streaming and as_ndarray:
                raise invalid("Expected streaming or return-ndarray, got both", "query")
            parameters = _parameters(request)
        except InferenceError as error:
            raise engine.refused(caller, error, model) from None
        engine.check_place(caller, model)
        try:
            read = _reader(request.headers.get("content-type", ""), await body_of(request, engine), engine.limits)
        except InferenceError as error:
            raise engine.refused(caller, error, model) from None
        call = PredictCall(engine.registry, read, model, parameters)

        def encode_response(response: InferenceResponse) -> tuple[bytes, str]:
            message = call.encode(response)
            if message.WhichOneof("data_oneof") == "bin_data" and not as_ndarray:
                return message.bin_data, _BINARY
            return written_json(message, as_ndarray=as_ndarray), _JSON

        try:
            if streaming:
                return await _stream_response(call, engine.parts(caller, model, call.decode, *_encoders(call)))
            content, media_type = await engine.exchange(caller, model, call.decode, encode_response)
        except InferenceError as error:
            raise call.localised(error) from None
        return Response(content, media_type=media_type)


def _flag(request: HttpRequest, name: str) -> bool:
    return request.query_params.get(name, "").lower() == "true"


def _parameters(request: HttpRequest) -> Mapping[str, object]:
    """Return the parameters in the query: numbers, booleans and texts; repeated parameters become lists of texts.

    Raises:
        InferenceError: INVALID_REQUEST for metadata, which could not be returned.
    """
    found: dict[str, object] = {}
    for name in request.query_params:
        if name in _CONTROLS:
            continue
        if name == METADATA:
            raise invalid("Expected metadata in gmap, so that it can be returned with the response", "query.metadata")
        values = request.query_params.getall(name)
        found[name] = _value(values[0]) if len(values) == 1 else list(values)
    return found


def _value(text: str) -> object:
    try:
        return msgspec.json.decode(text, type=bool | int | float)
    except msgspec.DecodeError:
        return text


def _reader(content_type: str, body: bytes, limits: Limits) -> Callable[[], tuple[Any, bool]]:
    media_type = media_type_of(content_type)
    if media_type not in (_JSON, _BINARY):
        raise invalid(
            f"Expected {_JSON} or {_BINARY}, got {brief(content_type) if content_type else 'none'}", "Content-Type"
        )
    if not body:
        raise invalid("Expected a body, got an empty one")
    if media_type == _JSON:
        return lambda: read_json_message(body, limits)
    return lambda: (GrpsMessage(bin_data=body), False)


def _encoders(call: PredictCall) -> tuple[Callable[[InferenceResponse], bytes], Callable[[Piece], bytes | None]]:
    def encode_chunk(chunk: Piece) -> bytes | None:
        message = call.encode_piece(chunk)
        return None if message is None else written_part(message)

    return lambda response: written_part(call.encode(response)), encode_chunk


async def _stream_response(call: PredictCall, parts: AsyncGenerator[bytes]) -> Response[Any]:
    """Return a streaming response. Errors before the first part are raised; a later error becomes the last part."""
    first = await anext(parts)

    async def rest() -> AsyncGenerator[bytes]:
        yield first
        try:
            async for part in parts:
                yield part
        except InferenceError as error:
            yield written_part(failed(call.localised(error)))

    # Litestar stops iterating when the client disconnects; close the generator at once, not at garbage collection.
    close_task = BackgroundTask(parts.aclose)
    return Stream(rest(), media_type=_BINARY, headers=_UNBUFFERED, background=close_task)
