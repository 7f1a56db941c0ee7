"""Triton's generate extension, for questions about a picture: one JSON object, or one server-sent event a token.

The picture is this server's addition to the extension: `image`, base64 or a data URI, beside `text_input`.
"""

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from litestar import Response
from litestar.background_tasks import BackgroundTask
from litestar.response import Stream

from app.engine.engine import Engine
from app.engine.streaming import Piece
from app.protocols.bytes_elements import StringElement
from app.protocols.caller import caller_of
from app.protocols.error_body import error_object
from app.protocols.json_body import read_json
from app.protocols.json_parameters import read_parameters_object
from app.protocols.protocol import INFER_FAILURES, Endpoint, HttpRequest, json_response
from app.protocols.request_body import body_to_infer
from tasks.exchange.error import InferenceError, invalid
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.tensor import BytesTensor

__all__ = ("WireGenerateRequest", "WireGenerateResponse", "generate_endpoints")

_PROTOCOL = "kserve-v2"
_EVENT_STREAM = "text/event-stream"
_EITHER = "Expected either image or images"
# Caches and proxies are to hand every event on at once.
_UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
_NEUTRAL_PATH = re.compile(r"^inputs\[0\]\.(?:(?P<image>data\[0\])|(?P<text>parameters\.prompts)|(?P<rest>.*))")


class WireGenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A question about a picture, or a text to be continued.

    Attributes:
        text_input: the question, or the text.
        image: base64 of an encoded image, or a data URI.
        images: the same as a list of one.
        id: given back.
        parameters: how the answer is generated, and `metadata`, which is given back. `stream` is passed over: the path
            says whether the answer is streamed.
        max_new_tokens: this and the following stand here as well as among `parameters`, which come first.
        temperature: as among `parameters`.
        top_p: as among `parameters`.
        top_k: as among `parameters`.
        seed: as among `parameters`.
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
    """An answer, or as much of it as came since the event before."""

    model_name: str
    model_version: str
    text_output: str
    id: str | msgspec.UnsetType = msgspec.UNSET
    parameters: Mapping[str, object] | msgspec.UnsetType = msgspec.UNSET


def generate_endpoints(engine: Engine) -> Sequence[Endpoint]:
    """`generate` answers in one object; `generate_stream` in events, of which the last may be an error."""

    async def generate(request: HttpRequest) -> Response[bytes]:
        question, pieces = await _asked(engine, request, whole=True)
        try:
            async with aclosing(pieces):
                found = [piece async for piece in pieces]
        except InferenceError as error:
            raise question.localised(error) from None
        return json_response(_encoded(found[0], "".join(piece.text for piece in found)))

    async def generate_stream(request: HttpRequest) -> Response[Any]:
        question, pieces = await _asked(engine, request)
        try:
            first = await anext(pieces)
        except InferenceError as error:
            raise question.localised(error) from None
        # Litestar drops the events when the sender is gone, which by itself would close the pieces some time later.
        leave = BackgroundTask(pieces.aclose)
        events = _events(question, first, pieces)
        return Stream(events, media_type=_EVENT_STREAM, headers=_UNBUFFERED, background=leave)

    found: list[Endpoint] = []
    for path in ("/v2/models/{target:str}", "/v2/models/{target:str}/versions/{version:str}"):
        found += [
            Endpoint(
                method="POST",
                path=f"{path}/generate",
                handle=generate,
                summary="Ask a model about a picture, or let it continue a text",
                body=WireGenerateRequest,
                answer=WireGenerateResponse,
                failures=INFER_FAILURES,
            ),
            Endpoint(
                method="POST",
                path=f"{path}/generate_stream",
                handle=generate_stream,
                summary="Ask a model about a picture, or let it continue a text, and be answered in server-sent events",
                body=WireGenerateRequest,
                answer=WireGenerateResponse,
                media_types=(_EVENT_STREAM,),
                failures=INFER_FAILURES,
            ),
        ]
    return found


class _Question:
    """A request's body, and the names of its fields for errors."""

    def __init__(self, body: bytes, model_name: str, model_version: str | None, limits: Limits) -> None:
        self._body = body
        self._limits = limits
        self._model_name = model_name
        self._model_version = model_version
        self._image = "image"
        self._beside: frozenset[str] = frozenset()

    def decode(self) -> InferenceRequest:
        wire = read_json(self._body, WireGenerateRequest, limits=self._limits)
        if wire.image is not None and wire.images is not None:
            raise invalid(_EITHER)
        images = wire.images if wire.image is None else [wire.image]
        if images is not None and len(images) != 1:
            raise invalid(f"Expected one image, got {len(images)}", "images")
        if wire.images is not None:
            self._image = "images[0]"
        parameters = read_parameters_object(wire.parameters, "parameters")
        if parameters.get("prompts") is not None:
            raise invalid("Expected the question in text_input", "parameters.prompts")
        given = {name: value for name, value in parameters.items() if value is not None}
        beside = {name: getattr(wire, name) for name in _BESIDE if getattr(wire, name) is not None}
        self._beside = frozenset(beside) - frozenset(given)
        told = {**beside, **given}
        if images is None:
            # What a model of text goes on with. One of pictures refuses it, and is made to say what it lacks.
            self._image = "text_input"
            tensor = BytesTensor(name="text", shape=(1,), elements=[StringElement(wire.text_input)], parameters=told)
        else:
            told["prompts"] = [wire.text_input]
            tensor = BytesTensor(name="image", shape=(1,), elements=[StringElement(images[0])], parameters=told)
        return InferenceRequest(
            id=wire.id or "", model_name=self._model_name, model_version=self._model_version, inputs=(tensor,)
        )

    def localised(self, error: InferenceError) -> InferenceError:
        """`error` with its path in the terms of this body."""
        if self._image == "text_input" and error.path == "inputs":
            return invalid(_EITHER)
        neutral = _NEUTRAL_PATH.match(error.path)
        if neutral is None:
            return error
        path = neutral["rest"] or (self._image if neutral["image"] else "text_input")
        if path.removeprefix("parameters.") in self._beside:
            path = path.removeprefix("parameters.")
        return InferenceError(error.kind, error.message, path)


_BESIDE = ("max_new_tokens", "temperature", "top_p", "top_k", "seed")


async def _asked(
    engine: Engine, request: HttpRequest, *, whole: bool = False
) -> tuple[_Question, AsyncGenerator[Piece]]:
    caller = caller_of(request, _PROTOCOL)
    name, version = request.path_params["target"], request.path_params.get("version")
    question = _Question(await body_to_infer(request, engine, caller, name), name, version, engine.limits)
    return question, engine.stream(caller, name, question.decode, whole=whole)


async def _events(question: _Question, first: Piece, pieces: AsyncGenerator[Piece]) -> AsyncGenerator[bytes]:
    """One event for each piece that says something; one at least."""
    piece: Piece | None = first
    said = False
    try:
        while piece is not None:
            if piece.text or (piece.final and not said):
                yield _event(_encoded(piece, piece.text, echo=not said))
                said = True
            piece = await anext(pieces, None)
    except InferenceError as error:
        yield _event(error_object(question.localised(error)))


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def _encoded(piece: Piece, text: str, *, echo: bool = True) -> bytes:
    return msgspec.json.encode(
        WireGenerateResponse(
            model_name=piece.model_name,
            model_version=piece.model_version,
            text_output=text,
            id=piece.id or msgspec.UNSET,
            parameters=(echo and piece.parameters) or msgspec.UNSET,
        )
    )
