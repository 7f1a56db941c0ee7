"""Triton's generate extension for questions about an image: one JSON object, or one server-sent event for each token.

This server adds the image to the extension: `image`, base64 or a data URI, beside `text_input`.
"""

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec
from litestar import Response

from app.engine.engine import Engine
from app.engine.streams.text_stream import Chunk
from app.protocols.http_inference import EVENT_STREAM, event, read_inference_body, streamed_response
from app.protocols.kserve_v2.binary import read_timeout
from app.protocols.kserve_v2.model_config import MODEL_PATH, VERSION_PATH
from app.protocols.protocol import Endpoint, HttpRequest, error_object, infer_endpoint, json_response
from app.protocols.request_info import read_request_info
from app.wire.bytes_elements import StringElement
from app.wire.json_body import read_json, read_parameters_object
from tasks.inference.error import InferenceError, invalid
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.tensor import BytesTensor

_PROTOCOL = "kserve-v2"
_EITHER_IMAGE = "Expected either image or images"
_NEUTRAL_PATH = re.compile(r"^inputs\[0\]\.(?:(?P<image>data\[0\])|(?P<text>parameters\.prompts)|(?P<rest>.*))")


class WireGenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A question about an image, or a text to continue.

    Attributes:
        text_input: the question, or the text.
        image: base64 of an encoded image, or a data URI.
        images: a list with one such image.
        id: returned in the response.
        parameters: parameters of generation, and `metadata`, which is returned. `stream` is ignored, because the
            path decides whether the response is streamed.
        max_new_tokens: as in `parameters`, which override this and the following fields.
        temperature: as in `parameters`.
        top_p: as in `parameters`.
        top_k: as in `parameters`.
        seed: as in `parameters`.
    """

    text_input: str
    image: str | None = None
    images: list[str] | None = None
    id: str | None = None
    parameters: dict[str, msgspec.Raw] | None = None
    max_new_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None


class WireGenerateResponse(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, or the part of it since the previous event."""

    model_name: str
    model_version: str
    text_output: str
    id: str | msgspec.UnsetType = msgspec.UNSET
    parameters: Mapping[str, object] | msgspec.UnsetType = msgspec.UNSET


def generate_endpoints(engine: Engine) -> Sequence[Endpoint]:
    """Return the endpoints `generate` (one object) and `generate_stream` (events; the last may be an error)."""

    async def generate(request: HttpRequest) -> Response[bytes]:
        codec, chunks = await _start_stream(engine, request, complete=True)
        try:
            async with aclosing(chunks):
                collected = [chunk async for chunk in chunks]
        except InferenceError as error:
            raise codec.map_error_path(error) from None
        return json_response(_encode(collected[0], "".join(chunk.text for chunk in collected)))

    async def generate_stream(request: HttpRequest) -> Response[Any]:
        codec, chunks = await _start_stream(engine, request)
        try:
            first_chunk = await anext(chunks)
        except InferenceError as error:
            raise codec.map_error_path(error) from None
        return streamed_response(_events(codec, first_chunk, chunks), chunks)

    ask = "Ask a model about an image, or let it continue a text"
    endpoint = partial(infer_endpoint, body=WireGenerateRequest, answer=WireGenerateResponse)
    return [
        one
        for path in (MODEL_PATH, VERSION_PATH)
        for one in (
            endpoint(path=f"{path}/generate", handle=generate, summary=ask),
            endpoint(
                path=f"{path}/generate_stream",
                handle=generate_stream,
                summary=f"{ask}, with server-sent events",
                media_types=(EVENT_STREAM,),
            ),
        )
    ]


class _GenerateCodec:
    """Decodes one request, and maps errors to the names of its fields."""

    def __init__(self, body: bytes, model_name: str, model_version: str | None, limits: Limits) -> None:
        self._body = body
        self._limits = limits
        self._model_name = model_name
        self._model_version = model_version
        self._image_path = "image"
        self._top_level_names: frozenset[str] = frozenset()

    def decode(self) -> InferenceRequest:
        wire = read_json(self._body, WireGenerateRequest, limits=self._limits)
        if wire.image is not None and wire.images is not None:
            raise invalid(_EITHER_IMAGE)
        images = wire.images if wire.image is None else [wire.image]
        if images is not None and len(images) != 1:
            raise invalid(f"Expected one image, got {len(images)}", "images")
        if wire.images is not None:
            self._image_path = "images[0]"
        parameters = read_parameters_object(wire.parameters, "parameters")
        if parameters.get("prompts") is not None:
            raise invalid("Expected the question in text_input", "parameters.prompts")
        explicit = {name: value for name, value in parameters.items() if value is not None}
        top_level = {name: getattr(wire, name) for name in _TOP_LEVEL if getattr(wire, name) is not None}
        self._top_level_names = frozenset(top_level) - frozenset(explicit)
        merged = {**top_level, **explicit}
        if images is None:
            # A text model continues this text. For an image model, the resulting error reports the missing image.
            self._image_path = "text_input"
            tensor = BytesTensor(name="text", shape=(1,), elements=[StringElement(wire.text_input)], parameters=merged)
        else:
            merged["prompts"] = [wire.text_input]
            tensor = BytesTensor(name="image", shape=(1,), elements=[StringElement(images[0])], parameters=merged)
        return InferenceRequest(
            id=wire.id or "",
            model_name=self._model_name,
            model_version=self._model_version,
            inputs=(tensor,),
            timeout=read_timeout(parameters),
        )

    def map_error_path(self, error: InferenceError) -> InferenceError:
        """Return `error` with its path in terms of this body."""
        if self._image_path == "text_input" and error.path == "inputs":
            return invalid(_EITHER_IMAGE)
        match = _NEUTRAL_PATH.match(error.path)
        if match is None:
            return error
        path = match["rest"] or (self._image_path if match["image"] else "text_input")
        if path.removeprefix("parameters.") in self._top_level_names:
            path = path.removeprefix("parameters.")
        return InferenceError(error.kind, error.message, path)


_TOP_LEVEL = ("max_new_tokens", "temperature", "top_p", "top_k", "seed")


async def _start_stream(
    engine: Engine, request: HttpRequest, *, complete: bool = False
) -> tuple[_GenerateCodec, AsyncGenerator[Chunk]]:
    info = read_request_info(request, _PROTOCOL)
    name, version = request.path_params["target"], request.path_params.get("version")
    codec = _GenerateCodec(await read_inference_body(request, engine, info, name), name, version, engine.limits)
    return codec, engine.stream_text(info, name, codec.decode, all_or_nothing=complete)


async def _events(codec: _GenerateCodec, first_chunk: Chunk, chunks: AsyncGenerator[Chunk]) -> AsyncGenerator[bytes]:
    """Yield one event for each chunk with text; at least one event."""
    chunk: Chunk | None = first_chunk
    has_text = False
    try:
        while chunk is not None:
            if chunk.text or (chunk.final and not has_text):
                yield event(_encode(chunk, chunk.text, echo=not has_text))
                has_text = True
            chunk = await anext(chunks, None)
    except InferenceError as error:
        yield event(error_object(codec.map_error_path(error)))


def _encode(chunk: Chunk, text: str, *, echo: bool = True) -> bytes:
    return msgspec.json.encode(
        WireGenerateResponse(
            model_name=chunk.model_name,
            model_version=chunk.model_version,
            text_output=text,
            id=chunk.id or msgspec.UNSET,
            parameters=(echo and chunk.parameters) or msgspec.UNSET,
        )
    )
