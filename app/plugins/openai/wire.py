"""The JSON types of OpenAI's chat completions, embeddings and models."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from app.core.protocols.kserve_v1.wire import WireModel


class WireModelName(msgspec.Struct, frozen=True, kw_only=True):
    """The members that are read before a request is queued."""

    model: str | None = None
    stream: bool | None = None


class WireImageUrl(msgspec.Struct, frozen=True):
    """An image as a data URI; `detail` is ignored."""

    url: str
    detail: str | None = None


class WireTextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """A text in a message."""

    text: str


class WireImagePart(msgspec.Struct, frozen=True, tag_field="type", tag="image_url"):
    """An image in a message."""

    image_url: WireImageUrl


class WireCalledFunction(msgspec.Struct, frozen=True, kw_only=True):
    """A function and its arguments, as a text with JSON."""

    name: str
    arguments: str


class WireToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call of a function; `index` counts the calls of a streamed answer."""

    index: int | None = None
    id: str
    type: Literal["function"]
    function: WireCalledFunction


class WireMessage(msgspec.Struct, frozen=True):
    """A message; "developer" is the same role as "system". A "tool" answers the call with its `tool_call_id`."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[WireTextPart | WireImagePart] | None = None
    tool_calls: list[WireToolCall] | None = None
    tool_call_id: str | None = None


class WireFunction(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call. `parameters` is a JSON Schema; `strict` rejects keywords without support."""

    name: Annotated[str, msgspec.Meta(pattern="^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class WireTool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call, or must call as `tool_choice`."""

    type: Literal["function"]
    function: WireFunction


class WireJsonSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON Schema of an answer; `strict` rejects keywords without support."""

    schema: dict[str, Any] | None = None
    strict: bool | None = None


class WireResponseFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The form of an answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: WireJsonSchema | None = None


class WireStreamOptions(msgspec.Struct, frozen=True):
    """Options of a stream."""

    include_usage: bool | None = None


class WireChatRequest(WireModelName, frozen=True, kw_only=True):
    """A conversation to continue; `max_completion_tokens` overrides `max_tokens`.

    The members of type Any accept their default only.
    """

    messages: list[WireMessage]
    max_tokens: int | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream_options: WireStreamOptions | None = None
    metadata: dict[str, msgspec.Raw] | None = None
    n: Any = None
    logprobs: Any = None
    logit_bias: Any = None
    frequency_penalty: Any = None
    presence_penalty: Any = None
    max_completion_tokens: int | None = None
    tools: list[WireTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | WireTool | None = None
    parallel_tool_calls: bool | None = None
    functions: Any = None
    function_call: Any = None
    response_format: WireResponseFormat | None = None
    top_logprobs: Any = None
    modalities: Any = None
    audio: Any = None


class WireEmbeddingsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Texts, or data URIs of images, to embed; `dimensions` accepts the length of the model's vectors only."""

    model: str | None = None
    input: str | list[Any]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None


class WireUsage(msgspec.Struct, frozen=True):
    """The tokens of the prompt, images included, and of the answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class WireChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The only choice."""

    index: int
    message: dict[str, Any]
    logprobs: None
    finish_reason: str


class WireResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A chat completion. `usage` is null for a model that does not count tokens."""

    id: str
    object: str
    created: int
    model: str
    choices: Sequence[WireChoice]
    usage: WireUsage | None


class WireEmbedding(msgspec.Struct, frozen=True, kw_only=True):
    """A vector: a list of numbers, or base64 of little-endian 32-bit floats."""

    object: str = "embedding"
    index: int
    embedding: str | list[float]


class WireEmbeddingsUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of all inputs."""

    prompt_tokens: int
    total_tokens: int


class WireEmbeddings(msgspec.Struct, frozen=True, kw_only=True):
    """The vectors of all inputs. `usage` is null for a model that does not count tokens."""

    object: str = "list"
    data: Sequence[WireEmbedding]
    model: str
    usage: WireEmbeddingsUsage | None = None


class WireModelList(msgspec.Struct, frozen=True, kw_only=True):
    """The models that answer with text or vectors."""

    object: str = "list"
    data: Sequence[WireModel]


class WireError(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, and with which member of the request."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class WireRejection(msgspec.Struct, frozen=True):
    """The body of every error."""

    error: WireError
