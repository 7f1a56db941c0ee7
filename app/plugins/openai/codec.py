"""Decode chat completions, and encode their answers. Pure functions of one request."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from app.core.engine.engine import Engine
from app.core.engine.models.registry import Registration
from app.core.engine.models.servable import Servable
from app.core.engine.request_context import RequestContext
from app.core.engine.streams.text_stream import Chunk
from app.core.protocols.inference_call import HttpResponse
from app.core.wire.bytes_elements import StringElement
from app.core.wire.data_url import media_type_of
from app.core.wire.error_paths import map_path, move
from app.core.wire.json_body import event, read_json
from app.plugins.openai.model_list import returns_texts
from app.plugins.openai.tools import AnswerFormat, answer_format, called, instruct, text_part
from app.plugins.openai.wire import (
    WireChatRequest,
    WireImagePart,
    WireMessage,
    WireModelName,
    WireToolCall,
    WireUsage,
)
from metadata.request import METADATA_PARAMETER
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse
from tasks.inference.tensor import BytesTensor
from tasks.task import TextChunk, TextPrediction, TokenUsage
from tasks.text_generation import TEXT_INPUT
from tasks.vision.request import IMAGE_INPUT

_SEEDS = 1 << 64
_PROMPT_PATHS = ("parameters.messages", "parameters.prompts")
_CONTENT_PATHS = ("", "data", "data[0]", "shape", *_PROMPT_PATHS, *(f"{path}[0]" for path in _PROMPT_PATHS))
"""Paths in the neutral input that mean the whole content. Its only prompt is no entry of the messages."""
_JSON_TYPES: Mapping[type, str] = {str: "str", int: "int", float: "float", dict: "dict"}

_ALLOWED: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
}
"""The accepted values of members that are not supported, besides null."""

UNSUPPORTED_PARAMETER = "unsupported_parameter"

ValueT = TypeVar("ValueT")


class UnsupportedError(InferenceError):
    """The member at `path` has a value that this server does not support. `code` is the code in the body."""

    def __init__(self, message: str, path: str, code: str) -> None:
        super().__init__(ErrorKind.INVALID_REQUEST, message, path)
        self.code = code


class ChatCodec:
    """A chat completion and its answer: an `InferenceCall` that can also be streamed.

    Args:
        engine: has the models and the limits.
        body: the JSON body, whose size is checked already.
        model_name: the model that it names; empty if it names none or is invalid.
        context: the request, for the id and the time of the answer.

    Attributes:
        last_events: the events at the end of a streamed answer: why it ends and, if requested, the number of tokens.
    """

    def __init__(self, engine: Engine, body: bytes, model_name: str, context: RequestContext) -> None:
        self.model_name = model_name
        self._engine = engine
        self._body = body
        self._context = context
        self._length_name = "max_tokens"
        self._image_paths: list[str] = []
        self._includes_usage = False
        self._has_chunk = False
        self._format = AnswerFormat()
        self._held: str | None = ""
        self.last_events = b""

    def decode(self) -> InferenceRequest:
        limits = self._engine.limits
        if not self.model_name:
            # An invalid body is reported before a missing name.
            read_json(self._body, WireModelName, limits=limits)
        registration, _ = find_model(self._engine, self.model_name, "answers with text", returns_texts)
        wire = read_json(self._body, WireChatRequest, limits=limits)
        _check_supported(wire)
        self._format = answer_format(wire)
        self._includes_usage = bool(wire.stream_options and wire.stream_options.include_usage)
        tensor = self._input(wire, self._parameters(wire, registration), registration)
        return InferenceRequest(id=self._context.request_id, model_name=registration.source.name, inputs=(tensor,))

    def map_error_path(self, error: InferenceError) -> InferenceError:
        """Return `error` with its path in terms of this body."""
        if isinstance(error, UnsupportedError):
            return error
        places = {
            **dict.fromkeys(_CONTENT_PATHS, "messages"),
            **{f"data[{index}]": path for index, path in enumerate(self._image_paths)},
            "parameters": "",
            "parameters.max_new_tokens": self._length_name,
            "parameters.json_schema": self._format.member,
        }
        own_places = {"inputs": "messages", "json_schema": self._format.member}
        return map_path(error, lambda _, subpath: move(subpath, places), own_places)

    def encode(self, response: InferenceResponse, /) -> HttpResponse:
        """Return the complete answer."""
        (answer,) = cast("TextPrediction", response.predictions[0]).chunks()
        calls = self._format.calls(answer.text)
        said = {"content": None, "tool_calls": calls} if calls else {"content": answer.text}
        message = {"role": "assistant", **said, "refusal": None, **_grounding(answer)}
        finish = "tool_calls" if calls else answer.finish
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        content = self._encode("chat.completion", response.model_name, [choice], usage=_usage(answer.usage))
        return HttpResponse(content=content)

    def encode_chunk(self, chunk: Chunk) -> bytes:
        """Return the events of a chunk, empty if it adds nothing to the answer. The last chunk sets `last_events`."""
        events = b"" if self._has_chunk else self._encode_part(chunk, {"role": "assistant", "content": ""})
        self._has_chunk = True
        text, calls = self._release(chunk)
        if calls:
            numbered = [msgspec.structs.replace(call, index=index) for index, call in enumerate(calls)]
            events += self._encode_part(chunk, {"tool_calls": numbered})
        elif text:
            events += self._encode_part(chunk, {"content": text})
        if chunk.final:
            finish = "tool_calls" if calls else chunk.finish
            self.last_events = self._encode_part(chunk, _grounding(chunk), finish)
            if self._includes_usage:
                self.last_events += self._encode_event(chunk, [], usage=_usage(chunk.usage))
        return events

    def _release(self, chunk: Chunk) -> tuple[str, Sequence[WireToolCall]]:
        """Return the text to send, or calls of functions. An answer that starts like a call is held until its end."""
        if self._held is None or not self._format.functions:
            return chunk.text, ()
        self._held += chunk.text
        if not chunk.final and self._held.lstrip()[:1] in ("", "{", "[", "<"):
            return "", ()
        text, self._held = self._held, None
        return text, self._format.calls(text) if chunk.final else ()

    def _input(self, wire: WireChatRequest, parameters: dict[str, object], registration: Registration) -> BytesTensor:
        images: list[StringElement] = []
        messages: list[dict[str, Any]] = []
        for index, message in enumerate(wire.messages):
            converted = self._message(message, images, f"messages[{index}]")
            if message.role == "tool" and messages and messages[-1]["role"] == "user":
                # Several results are one message, because most templates need the roles in turns.
                messages[-1]["content"] += converted["content"]
            else:
                messages.append(converted)
        instruct(messages, self._format.instruction)
        parameters.update(self._format.parameters, messages=messages)
        if registration.ready_servable().description.task_type.takes == "question":
            return BytesTensor(name=IMAGE_INPUT.name, shape=(len(images),), elements=images, parameters=parameters)
        if images:
            message = f"Model {registration.source.name!r} takes no images"
            raise UnsupportedError(message, self._image_paths[0], "unsupported_image_url")
        texts = [part["text"] for part in messages[-1]["content"]] if messages else []
        elements = [StringElement("\n".join(texts))]
        return BytesTensor(name=TEXT_INPUT.name, shape=(1,), elements=elements, parameters=parameters)

    def _message(self, message: WireMessage, images: list[StringElement], path: str) -> dict[str, Any]:
        role = {"developer": "system", "tool": "user"}.get(message.role, message.role)
        if message.tool_calls:
            return {"role": role, "content": [text_part(called(message.tool_calls, f"{path}.tool_calls"))]}
        parts = [text_part(f"The call {message.tool_call_id} returned:\n")] if message.role == "tool" else []
        if message.content is None or isinstance(message.content, str):
            return {"role": role, "content": [*parts, text_part(message.content or "")]}
        for index, part in enumerate(message.content):
            if isinstance(part, WireImagePart):
                image_path = f"{path}.content[{index}].image_url.url"
                check_data_uri(part.image_url.url, image_path)
                images.append(StringElement(part.image_url.url))
                self._image_paths.append(image_path)
                parts.append({"type": "image"})
            else:
                parts.append(text_part(part.text))
        return {"role": role, "content": parts}

    def _parameters(self, wire: WireChatRequest, registration: Registration) -> dict[str, object]:
        parameters: dict[str, object] = {
            name: value for name in ("temperature", "top_p", "top_k") if (value := getattr(wire, name)) is not None
        }
        max_tokens = wire.max_tokens
        if wire.max_completion_tokens is not None:
            self._length_name, max_tokens = "max_completion_tokens", wire.max_completion_tokens
        if max_tokens is not None:
            parameters["max_new_tokens"] = max_tokens
        elif "max_new_tokens" not in registration.source.settings.parameters:
            parameters["max_new_tokens"] = self._engine.limits.max_new_tokens
        if wire.seed is not None:
            # OpenAI's seeds may be negative.
            parameters["seed"] = wire.seed % _SEEDS
        if wire.stop:
            parameters["stop"] = [wire.stop] if isinstance(wire.stop, str) else wire.stop
        if wire.metadata:
            parameters[METADATA_PARAMETER] = _metadata(wire.metadata)
        return parameters

    def _encode_part(self, chunk: Chunk, delta: Mapping[str, object], finish: str | None = None) -> bytes:
        return self._encode_event(chunk, [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])

    def _encode_event(self, chunk: Chunk, choices: Sequence[object], **members: object) -> bytes:
        return event(self._encode("chat.completion.chunk", chunk.model_name, choices, **members))

    def _encode(self, kind: str, model: str, choices: Sequence[object], **members: object) -> bytes:
        created = self._context.timestamp // 1_000_000_000
        answer = {"id": f"chatcmpl-{self._context.request_id}", "object": kind, "created": created}
        return msgspec.json.encode({**answer, "model": model, "choices": choices, **members})


def find_model(
    engine: Engine, name: str, expected: str, read: Callable[[Servable], ValueT | None]
) -> tuple[Registration, ValueT]:
    """Return the model `name`, and what `read` returns for it. An empty name is the only model or the default.

    Raise MODEL_NOT_FOUND or MODEL_NOT_READY; INVALID_REQUEST for a model that does not do what is `expected`.
    """
    if not name:
        try:
            name = engine.registry.default_name()
        except InferenceError as error:
            message = "Expected the name of a model: this server has several"
            raise InferenceError(error.kind, message, "model") from None
    registration = engine.registry.find(name)
    servable = registration.ready_servable()
    value = read(servable)
    if not value:
        message = f"Expected a model that {expected}, {name!r} has the task {servable.description.task_type}"
        raise UnsupportedError(f"{message}; use /v2/models/{name}", "model", "unsupported_model")
    return registration, value


def _check_supported(wire: WireChatRequest) -> None:
    """Reject a member with a value that the server does not honour. Raise UnsupportedError naming the member."""
    for name, allowed in _ALLOWED.items():
        value = getattr(wire, name)
        if value is not None and value not in allowed:
            values = " or ".join(msgspec.json.encode(choice).decode() for choice in allowed) or "null"
            message = f"This server does not support {name}; expected {values}"
            raise UnsupportedError(message, name, UNSUPPORTED_PARAMETER)


def check_data_uri(url: str, path: str) -> None:
    """Reject an image that is not in a data URI. Raise UnsupportedError naming `path`."""
    if not (media_type_of(url) or "").startswith("image/"):
        message = "Expected a data URI, data:image/<type>;base64,<data>: this server does not download images"
        raise UnsupportedError(message, path, "unsupported_image_url")


def _metadata(members: Mapping[str, msgspec.Raw]) -> object:
    """Return OpenAI's pairs of texts as entries; metadata in Chariot's form as it is.

    Raise INVALID_REQUEST naming the member.
    """
    values = {name: read_json(value, object, f"metadata.{name}") for name, value in members.items()}
    if "extended_metadata" in values or "standard_metadata" in values:
        return values
    return [
        {"key": name, "type": kind, "value": value}
        if (kind := _JSON_TYPES.get(type(value))) is not None
        else {"key": name, "type": "str", "value": bytes(members[name]).decode()}
        for name, value in values.items()
    ]


def _grounding(answer: TextChunk | Chunk) -> Mapping[str, object]:
    """Return the member with what an answer locates, if its model locates objects."""
    return {} if answer.grounding is None else {"grounding": answer.grounding}


def _usage(usage: TokenUsage | None) -> WireUsage | None:
    return usage and WireUsage(usage.prompt, usage.completion, usage.prompt + usage.completion)
