"""The routes of OpenAI's API, under ``/openai/v1`` and ``/v1``."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from app.core.hooks import Protocols
from app.core.protocols.inference_call import EVENT_STREAM, InferenceCall, RequestHead, Stream
from app.core.protocols.kserve_v1.wire import WireModel
from app.core.protocols.protocol import Endpoint, HttpProtocol, HttpRequest, infer_endpoint, read_endpoint
from app.core.protocols.status import http_status
from app.core.settings.server import ServerSettings
from app.core.wire.json_body import event, read_json
from app.plugins.openai.codec import ChatCodec, UnsupportedError, find_model
from app.plugins.openai.embeddings import EmbeddingsCall
from app.plugins.openai.model_list import is_listed, listed_models
from app.plugins.openai.wire import (
    WireChatRequest,
    WireEmbeddings,
    WireEmbeddingsRequest,
    WireError,
    WireModelList,
    WireModelName,
    WireRejection,
    WireResponse,
)
from tasks.inference.error import ErrorKind, InferenceError

_MAX_INLINE_BYTES = 256 * 1024
"""Longer bodies are not scanned in the event loop, so that other requests do not wait."""

_DONE = event(b"[DONE]")

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES = {
    ErrorKind.MODEL_NOT_FOUND: "model_not_found",
    ErrorKind.MODEL_NOT_READY: "model_not_ready",
    ErrorKind.UNAUTHENTICATED: "invalid_api_key",
}
_WITHOUT_FIELD = (ErrorKind.UNAUTHENTICATED, ErrorKind.PERMISSION_DENIED)

_Create = Callable[[bytes, RequestContext, str, bool], InferenceCall | Stream]
"""Starts a request from its body, its context, the model's name, and whether the answer is streamed."""


class OpenAI(HttpProtocol):
    """OpenAI's chat completions, embeddings and models, for models that answer with text or vectors."""

    name = "openai"
    prefixes = ("/openai", "/v1/chat", "/v1/embeddings", "/v1/responses")

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        def models(_: HttpRequest) -> WireModelList:
            return WireModelList(data=listed_models(engine))

        def model(request: HttpRequest) -> WireModel:
            name = request.path_params["target"]
            registration, _ = find_model(engine, name, "answers with text or vectors", is_listed)
            return WireModel(id=registration.source.name)

        def start(
            create: _Create, _: RequestHead, body: bytes, context: RequestContext
        ) -> InferenceCall | Stream | Coroutine[Any, Any, InferenceCall | Stream]:
            if len(body) > _MAX_INLINE_BYTES:
                return start_later(create, body, context)
            return create(body, context, *_read_head(engine, body))

        async def start_later(create: _Create, body: bytes, context: RequestContext) -> InferenceCall | Stream:
            return create(body, context, *await asyncio.to_thread(_read_head, engine, body))

        def complete(body: bytes, context: RequestContext, name: str, is_streamed: bool) -> ChatCodec | Stream:
            codec = ChatCodec(engine, body, name, context)
            if not is_streamed:
                return codec
            return Stream(
                outputs=engine.stream_outputs(context, name, codec.decode, None, codec.encode_chunk),
                encode_error=lambda error: event(self.error_body(error)) + _DONE,
                encode_end=lambda: codec.last_events + _DONE,
                map_error_path=codec.map_error_path,
            )

        def embed(body: bytes, context: RequestContext, name: str, _: bool) -> EmbeddingsCall:
            return EmbeddingsCall(engine=engine, body=body, request_id=context.request_id, model_name=name)

        infer = partial(infer_endpoint, error=WireRejection)
        inferences: list[Endpoint] = []
        for prefix in ("/openai/v1", "/v1"):
            inferences.append(
                infer(
                    f"{prefix}/chat/completions",
                    "Continue a conversation",
                    start=partial(start, complete),
                    body=WireChatRequest,
                    answer=WireResponse,
                    answer_media_types=(EVENT_STREAM,),
                )
            )
            embeddings, body = "Embed texts or images", WireEmbeddingsRequest
            start_embedding = partial(start, embed)
            inferences.append(
                infer(f"{prefix}/embeddings", embeddings, start=start_embedding, body=body, answer=WireEmbeddings)
            )
        read = partial(read_endpoint, error=WireRejection)
        return [
            *inferences,
            read(
                "/openai/v1/models", "The models that answer with text or vectors", handle=models, answer=WireModelList
            ),
            read(
                "/openai/v1/models/{target:str}",
                "A model that answers with text or vectors",
                handle=model,
                answer=WireModel,
                failures=(400, 404, 503),
            ),
        ]

    def error_body(self, error: InferenceError, /) -> bytes:
        code = error.code if isinstance(error, UnsupportedError) else _CODES.get(error.kind)
        path = "model" if error.kind is ErrorKind.MODEL_NOT_FOUND else error.path
        param = None if error.kind in _WITHOUT_FIELD else path or None
        return _encode_error(http_status(error.kind), str(error), param, code)

    def routing_error(self, status: int, message: str, /) -> bytes:
        advice = "; use chat completions: POST /openai/v1/chat/completions" if "/v1/responses" in message else ""
        return _encode_error(status, message + advice)


def protocols(_: ServerSettings) -> Protocols:
    """Return the protocol of the main port."""
    return Protocols(http=(OpenAI(),))


def _read_head(engine: Engine, body: bytes) -> tuple[str, bool]:
    """Return the model in whose queue a request waits, empty if unknown, and whether its answer is streamed.

    Invalid bodies are reported when they are decoded.
    """
    name, is_streamed = "", False
    with suppress(InferenceError):
        head = read_json(body, WireModelName)
        name, is_streamed = head.model or "", bool(head.stream)
        name = name or engine.registry.default_name()
    return name, is_streamed


def _encode_error(status: int, message: str, param: str | None = None, code: str | None = None) -> bytes:
    error_type = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return msgspec.json.encode(WireRejection(WireError(message=message, type=error_type, param=param, code=code)))
