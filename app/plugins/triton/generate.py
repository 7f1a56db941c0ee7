"""Triton's generate extension for questions about an image: one JSON object, or one server-sent event for each token.

This server adds the image to the extension: `image`, base64 or a data URI, beside `text_input`.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import cast

import msgspec

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from app.core.engine.streams.text_stream import Chunk
from app.core.protocols.inference_call import EVENT_STREAM, HttpResponse, RequestHead, Stream
from app.core.protocols.kserve_v2.binary import read_timeout
from app.core.protocols.kserve_v2.routes import MODEL_PATH, VERSION_PATH
from app.core.protocols.protocol import Endpoint, error_object, infer_endpoint
from app.core.wire.bytes_elements import StringElement
from app.core.wire.error_paths import map_path, move
from app.core.wire.json_body import event, read_json, read_parameters_object
from tasks.inference.error import InferenceError, invalid
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse
from tasks.inference.tensor import BytesTensor
from tasks.task import TextPrediction

_NO_PARAMETERS: Mapping[str, object] = {}
_EITHER_IMAGE = "Expected either image or images"


class WireGenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A question about an image, or a text to continue.

    Attributes:
        text_input: the question, or the text.
        image: base64 of an encoded image, or a data URI.
        images: a list with one such image.
        id: returned in the response.
        parameters: parameters of generation, and `metadata`, which is returned. `stream` is ignored, because the
            path decides whether the response is streamed.
        max_new_tokens: as the following fields a parameter, which `parameters` override.
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

    def generate(head: RequestHead, body: bytes, _: RequestContext) -> _GenerateCall:
        return _GenerateCall(engine, head.target, head.version, body)

    def generate_stream(head: RequestHead, body: bytes, context: RequestContext) -> Stream:
        call = generate(head, body, context)
        return Stream(
            outputs=engine.stream_outputs(context, call.model_name, call.decode, None, call.encode_chunk),
            encode_error=lambda error: event(error_object(error)),
            map_error_path=call.map_error_path,
        )

    ask = "Ask a model about an image, or let it continue a text"
    endpoint = partial(infer_endpoint, body=WireGenerateRequest, answer=WireGenerateResponse)
    return [
        one
        for path in (MODEL_PATH, VERSION_PATH)
        for one in (
            endpoint(f"{path}/generate", ask, start=generate),
            endpoint(
                f"{path}/generate_stream",
                f"{ask}, with server-sent events",
                start=generate_stream,
                answer_media_types=(EVENT_STREAM,),
            ),
        )
    ]


class _GenerateCall(msgspec.Struct, eq=False):
    """One request and its answer.

    `decode` sets the path of the image, and the names of parameters at the top level; `encode_chunk` sets `has_text`.
    """

    engine: Engine
    model_name: str
    model_version: str | None
    body: bytes
    image_path: str = "image"
    top_level_names: frozenset[str] = frozenset()
    has_text: bool = False

    def decode(self) -> InferenceRequest:
        wire = read_json(self.body, WireGenerateRequest, limits=self.engine.limits)
        if wire.image is not None and wire.images is not None:
            raise invalid(_EITHER_IMAGE)
        images = wire.images if wire.image is None else [wire.image]
        if images is not None and len(images) != 1:
            raise invalid(f"Expected one image, got {len(images)}", "images")
        if wire.images is not None:
            self.image_path = "images[0]"
        parameters = read_parameters_object(wire.parameters, "parameters")
        if parameters.get("prompts") is not None:
            raise invalid("Expected the question in text_input", "parameters.prompts")
        explicit = {name: value for name, value in parameters.items() if value is not None}
        top_level = {name: getattr(wire, name) for name in _TOP_LEVEL if getattr(wire, name) is not None}
        self.top_level_names = frozenset(top_level) - frozenset(explicit)
        merged = {**top_level, **explicit}
        if images is None:
            # A text model continues this text. For an image model, the resulting error reports the missing image.
            self.image_path = "text_input"
            tensor = BytesTensor(name="text", shape=(1,), elements=[StringElement(wire.text_input)], parameters=merged)
        else:
            merged["prompts"] = [wire.text_input]
            tensor = BytesTensor(name="image", shape=(1,), elements=[StringElement(images[0])], parameters=merged)
        timeout = read_timeout(parameters)
        registration = self.engine.registry.find(self.model_name, self.model_version)
        servable = registration.ready_servable()
        servable.check_streams(self.model_name)
        if images is not None and servable.description.task_type.takes == "text":
            raise invalid(f"Model {self.model_name!r} takes no images", self.image_path)
        return InferenceRequest(
            id=wire.id or "",
            model_name=self.model_name,
            model_version=self.model_version,
            inputs=(tensor,),
            timeout=timeout,
        )

    def encode(self, response: InferenceResponse, /) -> HttpResponse:
        """Encode the complete answer, in a worker."""
        (output,) = response.outputs
        (answer,) = cast("TextPrediction", output.predictions[0]).chunks()
        return HttpResponse(content=_encode(response, answer.text, output.parameters))

    def encode_chunk(self, chunk: Chunk) -> bytes:
        """Return the event for a chunk; empty for one without text, unless the answer has none."""
        if not chunk.text and (self.has_text or not chunk.final):
            return b""
        parameters = _NO_PARAMETERS if self.has_text else chunk.parameters
        self.has_text = True
        return event(_encode(chunk, chunk.text, parameters))

    def map_error_path(self, error: InferenceError) -> InferenceError:
        """Return `error` with its path in terms of this body."""
        if self.image_path == "text_input" and error.path == "inputs":
            return invalid(_EITHER_IMAGE)
        places = {"data[0]": self.image_path, "parameters.prompts": "text_input", "parameters.prompts[0]": "text_input"}
        places |= {f"parameters.{name}": name for name in self.top_level_names}
        return map_path(error, lambda _, subpath: move(subpath, places))


_TOP_LEVEL = ("max_new_tokens", "temperature", "top_p", "top_k", "seed")


def _encode(answer: InferenceResponse | Chunk, text: str, parameters: Mapping[str, object]) -> bytes:
    return msgspec.json.encode(
        WireGenerateResponse(
            model_name=answer.model_name,
            model_version=answer.model_version,
            text_output=text,
            id=answer.id or msgspec.UNSET,
            parameters=parameters or msgspec.UNSET,
        )
    )
