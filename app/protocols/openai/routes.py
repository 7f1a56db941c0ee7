"""The routes of OpenAI's API, under ``/openai/v1`` and ``/v1``."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from litestar import Response

from app.engine.engine import Engine
from app.engine.request_context import RequestContext
from app.engine.streams.text_stream import Chunk
from app.protocols.inference_call import InferenceHead
from app.protocols.openai.codec import ChatCodec, CompletionCodec
from app.protocols.openai.embeddings import EmbeddingsCall
from app.protocols.openai.errors import error_body, routing_error
from app.protocols.openai.model_choice import default_model, listed_model, text_model
from app.protocols.openai.wire import (
    WireChatCompletion,
    WireChatRequest,
    WireCompletion,
    WireCompletionRequest,
    WireEmbeddings,
    WireEmbeddingsRequest,
    WireModelList,
    WireModelName,
    WireRefusal,
)
from app.protocols.openai_models import WireModel, listed_models
from app.protocols.protocol import INFER_FAILURES, Endpoint, HttpRequest, json_response
from app.protocols.request_body import read_inference_body
from app.protocols.request_info import read_request_info
from app.protocols.streamed_response import EVENT_STREAM, event, streamed_response
from app.wire.json_body import read_json
from tasks.inference.error import InferenceError

__all__ = ("OpenAI",)

_PREFIXES = ("/openai/v1", "/v1")
_CHAT, _COMPLETIONS, _EMBEDDINGS = "chat/completions", "completions", "embeddings"
_MAX_INLINE_BYTES = 64 * 1024
"""Longer bodies are not scanned in the event loop."""

Codec = ChatCodec | CompletionCodec
Handle = Callable[[HttpRequest], Awaitable[Response[Any]]]


class OpenAI:
    """OpenAI's chat completions, completions, embeddings and models, for models that answer with text or vectors."""

    name = "openai"
    prefixes = ("/openai", "/v1/chat", "/v1/completions", "/v1/embeddings")

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        async def models(_: HttpRequest) -> Response[bytes]:
            return json_response(msgspec.json.encode(WireModelList(data=listed_models(engine))))

        async def model(request: HttpRequest) -> Response[bytes]:
            registration = listed_model(engine, request.path_params["target"])
            return json_response(msgspec.json.encode(WireModel(id=registration.source.name)))

        async def chat(request: HttpRequest) -> Response[Any]:
            return await self._complete(engine, request, ChatCodec)

        async def complete(request: HttpRequest) -> Response[Any]:
            return await self._complete(engine, request, CompletionCodec)

        def embed(_: InferenceHead, body: bytes, context: RequestContext) -> EmbeddingsCall:
            return EmbeddingsCall(engine, body, context)

        inferences = [
            endpoint
            for prefix in _PREFIXES
            for endpoint in (
                _inference(f"{prefix}/{_CHAT}", chat, "Continue a conversation", WireChatRequest, WireChatCompletion),
                _inference(
                    f"{prefix}/{_COMPLETIONS}", complete, "Continue a text", WireCompletionRequest, WireCompletion
                ),
                Endpoint(
                    method="POST",
                    path=f"{prefix}/{_EMBEDDINGS}",
                    start=embed,
                    queue_model=str,
                    summary="Embed texts or images",
                    body=WireEmbeddingsRequest,
                    answer=WireEmbeddings,
                    refusal=WireRefusal,
                    failures=INFER_FAILURES,
                    permission="infer",
                ),
            )
        ]
        return [
            *inferences,
            Endpoint(
                method="GET",
                path="/openai/v1/models",
                handle=models,
                summary="The models that answer with text or vectors",
                answer=WireModelList,
                refusal=WireRefusal,
                permission="infer",
            ),
            Endpoint(
                method="GET",
                path="/openai/v1/models/{target:str}",
                handle=model,
                summary="A model that answers with text or vectors",
                answer=WireModel,
                refusal=WireRefusal,
                failures=(400, 404, 503),
                permission="infer",
            ),
        ]

    def error_body(self, error: InferenceError, /) -> bytes:
        return error_body(error)

    def routing_error(self, status: int, message: str, /) -> bytes:
        return routing_error(status, message)

    async def _complete(self, engine: Engine, request: HttpRequest, codec_type: type[Codec]) -> Response[Any]:
        context = read_request_info(request, self.name)
        body = await read_inference_body(request, engine, context, "")
        name = ""
        try:
            if len(body) <= _MAX_INLINE_BYTES:
                head = read_json(body, WireModelName, limits=engine.limits)
            else:
                head = await asyncio.to_thread(read_json, body, WireModelName, "", engine.limits)
            name = head.model or default_model(engine)
            codec = codec_type(body, text_model(engine, name), context, engine.limits)
        except InferenceError as error:
            raise engine.report_refused(context, error, name) from None
        chunks = engine.stream_text(context, name, codec.decode, all_or_nothing=not head.stream)
        try:
            if head.stream:
                return streamed_response(_events(codec, await anext(chunks), chunks), chunks)
            async with aclosing(chunks):
                return json_response(codec.encode([chunk async for chunk in chunks]))
        except InferenceError as error:
            raise codec.map_error_path(error) from None


def _inference(path: str, handle: Handle, summary: str, body: type, answer: type) -> Endpoint:
    return Endpoint(
        method="POST",
        path=path,
        handle=handle,
        queue_model=str,
        summary=summary,
        body=body,
        answer=answer,
        refusal=WireRefusal,
        media_types=(EVENT_STREAM,),
        failures=INFER_FAILURES,
        permission="infer",
    )


async def _events(codec: Codec, first_chunk: Chunk, chunks: AsyncGenerator[Chunk]) -> AsyncGenerator[bytes]:
    """Yield the events of a stream. An error after the first chunk is an event too."""
    name = first_chunk.model_name
    if (role := codec.encode_role(name)) is not None:
        yield event(role)
    chunk: Chunk | None = first_chunk
    last = first_chunk
    try:
        while chunk is not None:
            if chunk.text:
                yield event(codec.encode_delta(name, chunk.text, None))
            last, chunk = chunk, await anext(chunks, None)
        yield event(codec.encode_delta(name, None, last.finish))
        if codec.includes_usage:
            yield event(codec.encode_usage(last))
    except InferenceError as error:
        yield event(error_body(codec.map_error_path(error)))
    yield event(b"[DONE]")
