"""Parameters of text generation: sampling, and conversations of messages with texts and images."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from tasks.inference.error import ErrorKind, InferenceError, invalid
from tasks.inference.limits import Limits, check_unicode, too_large
from tasks.inference.parameters import InputParameters
from tasks.inference.request import Fraction, JsonObject, Positive, TextList
from tasks.inference.tensor import BytesTensor

_MAX_STOPS = 4
_MAX_STOP_LENGTH = 1000
_MAX_SCHEMA_BYTES = 64 * 1024

JSON_SCHEMA = "json_schema"
"""The path of the parameter, for errors of models."""


def read_texts(tensor: BytesTensor, path: str) -> list[str]:
    """Return the elements of a tensor, which are at `path`. Raise INVALID_REQUEST for one that is not text."""
    texts: list[str] = []
    for index, element in enumerate(tensor.elements):
        try:
            texts.append(element.text())
        except InferenceError as error:
            raise error.with_prefix(f"{path}[{index}]") from None
    return texts


class MessagePart(msgspec.Struct, frozen=True, kw_only=True):
    """A text, or the place of the next image of the request."""

    type: Literal["text", "image"]
    text: str = ""


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: tuple[MessagePart, ...]

    @property
    def text(self) -> str:
        """Return the texts of the message, one a line."""
        return "\n".join(part.text for part in self.content if part.type == "text")


def question(prompt: str) -> Message:
    """Return the message of a user who asks about one image."""
    return Message("user", (MessagePart(type="image"), MessagePart(type="text", text=prompt)))


def with_texts(message: Message, text: str) -> Message:
    """Return `message` with `text` in the place of each of its texts, to find the control tokens of a template."""
    parts = (part if part.type == "image" else MessagePart(type="text", text=text) for part in message.content)
    return Message(message.role, tuple(parts))


def image_count(messages: Sequence[Message]) -> int:
    """Return the number of images in `messages`."""
    return sum(part.type == "image" for message in messages for part in message.content)


def check_messages(messages: Sequence[Message], images: int, limits: Limits, path: str) -> None:
    """Reject, naming `path`, messages that do not fit the request's number of images or the limits."""
    if not messages or messages[-1].role != "user":
        raise invalid("Expected messages, the last one from the user", path)
    if (count := image_count(messages)) != images:
        raise invalid(f"Expected messages with the {images} images of the request, got places for {count}", path)
    length = sum(len(part.text) for message in messages for part in message.content)
    if length > limits.max_text_length:
        raise too_large(limits.max_text_length, "characters in all messages (--max-text-length)", length, path)
    for message in messages:
        check_unicode(message.text, path)


def reject_schema(parameters: "SamplingParameters") -> None:
    """Reject a JSON Schema, for a model that does not choose among tokens by their scores."""
    if parameters.json_schema is not None:
        raise invalid("Expected no schema: this model cannot hold its answers to one", JSON_SCHEMA)


def reject_conversation(messages: Sequence[Message] | None, path: str) -> None:
    """Reject, naming `path`, a conversation of several messages, for a model that answers single questions."""
    if messages is not None and (len(messages) > 1 or image_count(messages) > 1):
        raise invalid("Expected one question from the user: this model has no chat template for a conversation", path)


def template_message(message: Message, image_token: str | None) -> dict[str, object]:
    """Return a message for a chat template that expects parts; one string if `image_token` marks its images."""
    if image_token is not None:
        texts = (image_token if part.type == "image" else part.text for part in message.content)
        return {"role": message.role, "content": "\n".join(texts)}
    parts = [
        {"type": "image"} if part.type == "image" else {"type": "text", "text": part.text} for part in message.content
    ]
    return {"role": message.role, "content": parts}


class SamplingParameters(InputParameters, frozen=True, kw_only=True):
    """Sampling parameters.

    Attributes:
        max_new_tokens: maximum number of generated tokens in an answer.
        temperature: 0 selects the most likely token; higher values sample more randomly.
        top_p: sample only from the most likely tokens that together reach this probability.
        top_k: sample only from this number of the most likely tokens.
        seed: seed for reproducible sampling.
        stop: up to 4 texts. The answer ends before the first of them.
        messages: a conversation to continue, whose image parts stand for the images of the input in their order.
        json_schema: the JSON Schema of the answer, which is then JSON. ``{"type": "object"}`` is any object.
        json_only: false also allows an answer that is text, and does not start like JSON.
    """

    max_new_tokens: Positive = 64
    temperature: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    top_p: Fraction = 1.0
    top_k: Positive | None = None
    seed: Annotated[int, msgspec.Meta(ge=0)] | None = None
    stop: TextList | None = None
    messages: tuple[Message, ...] | None = None
    json_schema: JsonObject | None = None
    json_only: bool = True


def within_limits(defaults: Mapping[str, object], limits: Limits) -> Mapping[str, object]:
    """Return a model's default parameters, with `max_new_tokens` reduced to the limit of a request."""
    default = defaults.get("max_new_tokens")
    tokens = default if isinstance(default, int) else SamplingParameters().max_new_tokens
    return {**defaults, "max_new_tokens": limits.max_new_tokens} if tokens > limits.max_new_tokens else defaults


def check_sampling(parameters: SamplingParameters, limits: Limits, path: str) -> None:
    """Reject, under `path`, too many tokens, a long schema, and too many or empty stop sequences."""
    if parameters.max_new_tokens > limits.max_new_tokens:
        message = f"Expected at most {limits.max_new_tokens} (--max-new-tokens), got {parameters.max_new_tokens}"
        raise InferenceError(ErrorKind.TOO_LARGE, message, f"{path}.max_new_tokens")
    if parameters.json_schema and (size := len(msgspec.json.encode(parameters.json_schema))) > _MAX_SCHEMA_BYTES:
        raise too_large(_MAX_SCHEMA_BYTES, "bytes of a schema", size, f"{path}.{JSON_SCHEMA}")
    stop = parameters.stop
    if stop is not None and (len(stop) > _MAX_STOPS or not all(0 < len(text) <= _MAX_STOP_LENGTH for text in stop)):
        message = f"Expected at most {_MAX_STOPS} texts of 1 to {_MAX_STOP_LENGTH} characters"
        raise invalid(message, f"{path}.stop")
