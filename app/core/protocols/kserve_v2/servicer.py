"""The gRPC service of the Open Inference Protocol, `inference.GRPCInferenceService` with Triton's definitions.

Triton's own methods belong to its plugin.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from inspect import isawaitable
from typing import Any, cast

import grpc
import msgspec

from app.core.engine.cancellation import stopping_error
from app.core.engine.engine import Engine
from app.core.engine.models.servable import Servable
from app.core.engine.request_context import RequestContext
from app.core.proto import INFERENCE
from app.core.protocols.grpc_protocol import (
    Call,
    GrpcProtocol,
    Handler,
    abort_call,
    metadata_of,
    read_call_info,
    unary_handler,
)
from app.core.protocols.kserve_v2.protobuf import (
    InferRequest,
    decode,
    encode,
    encode_chunks,
    encode_error,
    encode_message,
    read_message,
)
from app.core.protocols.kserve_v2.rendering import OutputSelection
from app.core.protocols.kserve_v2.routes import model_metadata, server_metadata
from app.core.protocols.protocol import Permission
from app.core.wire.protobuf_limits import parse_message
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse

_NAME = "kserve-v2-grpc"
_STATUS_KEY = "triton_grpc_error"
"""Metadata key: a stream ends at the first error with its status, instead of sending the error as an item."""

_END_SECONDS = 0.2
"""How long a stopping server waits for the end of a client's side of a stream."""


class _Inferences:
    """Answer inferences with an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def infer(self, data: bytes, context: RequestContext) -> bytes:
        request = self._parse(data, context)
        return await self._infer_response(request, self._servable(request, context), context)

    async def infer_stream(self, data: bytes, context: RequestContext, in_band: bool) -> AsyncGenerator[bytes]:
        """Yield the response items for one request of a stream.

        Raise InferenceError if any error, unless it is sent in band.

        Args:
            data: the serialized request.
            context: the request, with the ids of the stream.
            in_band: whether to send an error as an item.
        """
        request_id = ""
        try:
            request = self._parse(data, context)
            request_id = request.id
            servable = self._servable(request, context)
            # An answer whose outputs or format are selected cannot be streamed.
            if not servable.streams or request.outputs or "output_format" in request.parameters:
                yield await self._infer_response(request, servable, context, streamed=True)
                return
            limits = self._engine.limits
            chunks = self._engine.stream_outputs(
                context, request.model_name, lambda: decode(request, servable, limits)[0], None, lambda chunk: chunk
            )
            async with aclosing(encode_chunks(chunks, raw=bool(request.raw_input_contents))) as items:
                async for item in items:
                    yield item
        except InferenceError as error:
            if not in_band:
                raise
            yield encode_error(error, request_id)

    async def _infer_response(
        self, request: Any, servable: Servable, context: RequestContext, *, streamed: bool = False
    ) -> bytes:
        selection = OutputSelection()

        def decode_request() -> InferenceRequest:
            nonlocal selection
            inference_request, selection = decode(request, servable, self._engine.limits)
            return inference_request

        def encode_response(response: InferenceResponse) -> bytes:
            return encode(response, servable, selection, streamed=streamed)

        return await self._engine.handle(context, request.model_name, decode_request, encode_response)

    def _parse(self, data: bytes, context: RequestContext) -> Any:
        # Parse in the event loop: parsing holds the GIL in any thread, and later errors are reported with the model's
        # name. Every request comes here, so that a context manager would cost too much.
        try:
            return parse_message(InferRequest, data, self._engine.limits)
        except InferenceError as error:
            raise self._engine.report_rejected(context, error) from None

    def _servable(self, request: Any, context: RequestContext) -> Servable:
        try:
            return self._engine.registry.find(request.model_name, request.model_version or None).ready_servable()
        except InferenceError as error:
            raise self._engine.report_rejected(context, error, request.model_name) from None


def _is_model_ready(engine: Engine, model: Any) -> bool:
    try:
        engine.ready_model(model.name, model.version or None)
    except InferenceError as error:
        # As in Triton, an unknown model is not ready either.
        if error.kind not in (ErrorKind.MODEL_NOT_READY, ErrorKind.MODEL_NOT_FOUND):
            raise
        return False
    return True


PlainCalls = Mapping[str, tuple[Permission, Callable[[Engine, Any], object]]]
"""The permission of each call that is no inference, and the function that returns or awaits the response's content."""

_CALLS: PlainCalls = {
    "ServerLive": ("open", lambda _, __: {"live": True}),
    "ServerReady": ("open", lambda engine, _: {"ready": not engine.not_ready_reason}),
    "ServerMetadata": ("infer", lambda engine, _: server_metadata(engine)),
    "ModelReady": ("infer", lambda engine, model: {"ready": _is_model_ready(engine, model)}),
    "ModelMetadata": (
        "infer",
        lambda engine, model: model_metadata(engine, engine.registry.find(model.name, model.version or None)),
    ),
}


class KServeV2Grpc(GrpcProtocol):
    """KServe's V2 protocol, the Open Inference Protocol."""

    name = _NAME
    service = INFERENCE
    permissions: Mapping[str, Permission] = {
        **{name: permission for name, (permission, _) in _CALLS.items()},
        **dict.fromkeys(("ModelInfer", "ModelStreamInfer"), "infer"),
    }
    queued_methods = frozenset({"ModelInfer"})

    def handlers(self, engine: Engine, stopping: asyncio.Event, /) -> Mapping[str, Handler]:
        inferences = _Inferences(engine)

        async def stream(requests: AsyncIterable[bytes], call: Call) -> AsyncGenerator[bytes]:
            context = read_call_info(call, self.name)
            in_band = metadata_of(call).get(_STATUS_KEY) != "true"
            try:
                with engine.admission.clients.slot(context):
                    async with aclosing(_until_stopping(stopping, requests)) as received:
                        async for data in received:
                            # A context belongs to one request.
                            message_context = msgspec.structs.replace(context, response_headers={})
                            async with aclosing(inferences.infer_stream(data, message_context, in_band)) as items:
                                async for item in items:
                                    yield item
            except Exception as error:  # noqa: BLE001  grpc would send any exception to the client
                failure = error
            else:
                return
            await abort_call(call, context, failure)

        streaming_handler = cast("Handler", grpc.stream_stream_rpc_method_handler(cast("Any", stream)))
        return {
            **plain_handlers(engine, _CALLS),
            "ModelInfer": unary_handler(self.name, inferences.infer),
            "ModelStreamInfer": streaming_handler,
        }


def plain_handlers(engine: Engine, calls: PlainCalls) -> Mapping[str, Handler]:
    """Return the methods of calls that are no inference."""
    return {
        name: unary_handler(_NAME, partial(_answer_plain, engine, name, respond))
        for name, (_, respond) in calls.items()
    }


async def _answer_plain(
    engine: Engine, name: str, respond: Callable[[Engine, Any], object], data: bytes, _: RequestContext
) -> bytes:
    message = read_message(INFERENCE.methods_by_name[name].input_type.name, data)
    if repository := getattr(message, "repository_name", ""):
        text = f"Expected no repository name, because there is only one; got {repository!r}"
        raise InferenceError(ErrorKind.UNSUPPORTED, text)
    content: Any = respond(engine, message)
    return encode_message(f"{name}Response", await content if isawaitable(content) else content)


async def _until_stopping(stopping: asyncio.Event, requests: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """Yield the requests of a stream.

    Raise MODEL_NOT_READY once the server stops, unless the client has ended its side; an idle stream would otherwise
    delay the stop.
    """
    iterator = aiter(requests)
    stop_task = asyncio.ensure_future(stopping.wait())
    next_request: asyncio.Future[bytes] | None = None
    try:
        while True:
            next_request = asyncio.ensure_future(anext(iterator))
            await asyncio.wait({next_request, stop_task}, return_when=asyncio.FIRST_COMPLETED)
            if not next_request.done():
                # gRPC reports the end of the client's side a moment later.
                await asyncio.wait({next_request}, timeout=_END_SECONDS)
                if not (next_request.done() and isinstance(next_request.exception(), StopAsyncIteration)):
                    raise stopping_error()
            try:
                data = next_request.result()
            except StopAsyncIteration:
                return
            yield data
    finally:
        stop_task.cancel()
        if next_request is not None:
            next_request.cancel()
            # Callers close the generator that it reads from, which must not run any more.
            await asyncio.wait({next_request})
