"""Check the chat completions and embeddings of OpenAI's API."""

import binascii
import struct
from typing import Any

import msgspec

from app.conformance.check import Check, InconclusiveError, Level, NotApplicableError, ViolationError, expect, quote
from app.conformance.client.probe import Exchange, Probe
from app.conformance.row_requests import UNKNOWN
from app.conformance.tensors import ENCODED_IMAGES, expect_error, expect_json_object, expect_status, is_list, is_object

_CHAT = "/v1/chat/completions"
_EMBEDDINGS = "/v1/embeddings"
_TEXTS = ("a red car", "a blue star")
_FLOAT_ERROR = 1e-6
_DATA = "data: "
_DONE = "[DONE]"


def _request(probe: Probe, **members: object) -> dict[str, object]:
    """Return a request that the engine accepts: the given one, a question about an image, or a text.

    Raises:
        InconclusiveError: the engine accepts none.
        NotApplicableError: the model embeds texts instead.
    """
    model = _model(probe)
    if probe.target.request is not None:
        return {"model": model, **probe.target.request, **members}
    text = {"type": "text", "text": "What is in the picture?"}
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{ENCODED_IMAGES[0]}"}}
    for content in ([text, image], "What is the capital of France?"):
        request = {"model": model, "messages": [{"role": "user", "content": content}], "temperature": 0}
        if probe.post_json(_CHAT, request).ok:
            return {**request, **members}
    if probe.post_json(_EMBEDDINGS, {"model": model, "input": _TEXTS, "encoding_format": "float"}).ok:
        raise NotApplicableError("The model answers with vectors")
    raise InconclusiveError("The engine refuses every generated request; give a body with --request")


def _model(probe: Probe) -> str:
    if probe.target.model:
        return probe.target.model
    models: object = expect_json_object(probe.get("/v1/models")).get("data")
    if not is_list(models) or len(models) != 1 or not is_object(models[0]):
        raise InconclusiveError("The engine does not list exactly one model; choose one with --model")
    return str(models[0].get("id"))


def _ask(probe: Probe, **members: object) -> Exchange:
    return probe.post_json(_CHAT, _request(probe, **members))


def _choice(answer: dict[str, Any]) -> dict[str, Any]:
    choices: Any = answer.get("choices")
    expect(is_list(choices) and choices and is_object(choices[0]), "a list of choices", answer)
    return choices[0]


def _text(answer: dict[str, Any]) -> str:
    message = _choice(answer).get("message")
    text: Any = message.get("content") if is_object(message) else None
    expect(isinstance(text, str), "a text in choices[0].message.content", answer)
    return text


def _usage(answer: dict[str, Any]) -> dict[str, Any]:
    usage = answer.get("usage")
    if usage is None:
        raise InconclusiveError("The model counts no tokens")
    if not is_object(usage) or not all(
        isinstance(usage.get(f"{name}_tokens"), int) for name in ("prompt", "completion", "total")
    ):
        raise ViolationError(f"Expected prompt_tokens, completion_tokens and total_tokens, got {quote(usage)}")
    return usage


def _parts(exchange: Exchange) -> list[dict[str, Any]]:
    """Return the parts of a stream, without the last event."""
    expect_status(exchange, 200)
    content_type = exchange.headers.get("content-type", "")
    expect(content_type.partition(";")[0].strip() == "text/event-stream", "text/event-stream", content_type)
    lines = [line.removeprefix(_DATA) for line in exchange.body.decode(errors="replace").splitlines() if line]
    try:
        return [msgspec.json.decode(line, type=dict[str, Any]) for line in lines if line != _DONE]
    except msgspec.DecodeError as error:
        raise ViolationError(f"Expected a JSON object in each event: {error}") from None


def _models(probe: Probe) -> None:
    got = expect_json_object(probe.get("/v1/models"))
    models: Any = got.get("data")
    expect(got.get("object") == "list" and is_list(models), '"object": "list" and data', got)
    for model in models:
        if not is_object(model) or not isinstance(model.get("id"), str) or model.get("object") != "model":
            raise ViolationError(f"Expected id and object of each model, got {quote(model)}")


def _answers(probe: Probe) -> None:
    answer = expect_json_object(_ask(probe))
    _text(answer)
    if answer.get("object") != "chat.completion" or not isinstance(answer.get("id"), str):
        raise ViolationError(f"Expected id and object of a chat.completion, got {quote(answer)}")


def _role(probe: Probe) -> None:
    choice = _choice(expect_json_object(_ask(probe)))
    if choice["message"].get("role") != "assistant" or choice.get("finish_reason") not in ("stop", "length"):
        raise ViolationError(f"Expected the role assistant, and finish_reason stop or length, got {quote(choice)}")


def _counts(probe: Probe) -> None:
    usage = _usage(expect_json_object(_ask(probe)))
    if usage["total_tokens"] != usage["prompt_tokens"] + usage["completion_tokens"] or usage["prompt_tokens"] < 1:
        raise ViolationError(f"Expected total_tokens to be the sum of the others, got {quote(usage)}")


def _max_tokens(probe: Probe) -> None:
    answer = expect_json_object(_ask(probe, max_tokens=1))
    expect(_usage(answer)["completion_tokens"] <= 1, "one token", answer)
    if _choice(answer).get("finish_reason") != "length" and _text(answer):
        raise ViolationError(f"Expected finish_reason length after max_tokens, got {quote(answer)}")


def _stop(probe: Probe) -> None:
    text = _text(expect_json_object(_ask(probe)))
    stop = text[len(text) // 2 :][:3]
    if not stop.strip():
        raise InconclusiveError("The answer is too short to be stopped")
    stopped = _text(expect_json_object(_ask(probe, stop=[stop])))
    expect(stop not in stopped, f"an answer that ends before {quote(stop)}", stopped)


def _streams(probe: Probe) -> None:
    parts = _parts(_ask(probe, stream=True))
    deltas = [part["choices"][0].get("delta", {}) for part in parts if part.get("choices")]
    streamed = "".join(delta.get("content") or "" for delta in deltas)
    complete = _text(expect_json_object(_ask(probe)))
    expect(streamed == complete, f"the parts of {quote(complete)}", streamed)


def _done(probe: Probe) -> None:
    exchange = _ask(probe, stream=True)
    _parts(exchange)
    if not exchange.body.decode(errors="replace").rstrip().endswith(f"{_DATA}{_DONE}"):
        raise ViolationError(f"Expected data: [DONE] at the end, got {quote(exchange.body[-120:])}")


def _finish(probe: Probe) -> None:
    choices = [part["choices"][0] for part in _parts(_ask(probe, stream=True)) if part.get("choices")]
    if not choices or choices[-1].get("finish_reason") not in ("stop", "length"):
        raise ViolationError(f"Expected finish_reason in the last choice, got {quote(choices[-1:])}")


def _streamed_usage(probe: Probe) -> None:
    _usage(expect_json_object(_ask(probe)))
    parts = _parts(_ask(probe, stream=True, stream_options={"include_usage": True}))
    if not parts or parts[-1].get("choices") != [] or not is_object(parts[-1].get("usage")):
        raise ViolationError(f"Expected usage and no choices in the last part, got {quote(parts[-1:])}")


def _several(probe: Probe) -> None:
    exchange = _ask(probe, n=2, temperature=1)
    if exchange.refused:
        return
    choices = expect_json_object(exchange).get("choices")
    expect(is_list(choices) and len(choices) == 2, "two choices or a refusal", exchange.body)


def _error_object(probe: Probe) -> None:
    for exchange in (
        probe.post_json(_CHAT, {**_request(probe), "model": UNKNOWN}),
        probe.post_json(_CHAT, {"model": _model(probe), "messages": 1}),
    ):
        error = exchange.object().get("error") if exchange.refused else {"message": "accepted", "type": ""}
        if not is_object(error) or not isinstance(error.get("message"), str) or not isinstance(error.get("type"), str):
            raise ViolationError(f"Expected error.message and error.type, got {quote(exchange.body)}")


def _embeddings(probe: Probe, **members: object) -> list[Any]:
    """Return the embeddings of `_TEXTS`.

    Raises:
        NotApplicableError: the model embeds no texts.
    """
    exchange = probe.post_json(_EMBEDDINGS, {"model": _model(probe), "input": _TEXTS, **members})
    if exchange.refused and not exchange.unauthorized:
        raise NotApplicableError("The model embeds no texts")
    data: Any = expect_json_object(exchange).get("data")
    expect(is_list(data) and all(is_object(item) for item in data), "a list of objects in data", data)
    return data


def _embeds(probe: Probe) -> None:
    for index, item in enumerate(data := _embeddings(probe, encoding_format="float")):
        vector = item.get("embedding")
        if item.get("object") != "embedding" or item.get("index") != index or not is_list(vector) or not vector:
            raise ViolationError(f"Expected an embedding with the index {index} and a vector, got {quote(item)}")
    if len(data) != len(_TEXTS):
        raise ViolationError(f"Expected {len(_TEXTS)} embeddings, got {len(data)}")


def _embeds_base64(probe: Probe) -> None:
    floats = _embeddings(probe, encoding_format="float")
    for item, encoded in zip(floats, _embeddings(probe, encoding_format="base64"), strict=False):
        text = encoded.get("embedding")
        vector: list[float] = item["embedding"]
        if is_list(text):
            raise ViolationError("Expected base64, got a list")
        try:
            data = binascii.a2b_base64(str(text))
        except binascii.Error as error:
            raise ViolationError(f"Expected base64: {error}") from None
        decoded: tuple[float, ...] = struct.unpack(f"<{len(data) // 4}f", data) if len(data) == 4 * len(vector) else ()
        if len(decoded) != len(vector) or any(
            abs(one - other) > _FLOAT_ERROR * max(1, abs(other)) for one, other in zip(decoded, vector, strict=True)
        ):
            raise ViolationError(f"Expected {len(vector)} little-endian 32-bit floats of the same vector")


_API = "OpenAI, API reference"
_SDK = "openai-python"
_MUST, _SHOULD = Level.MUST, Level.SHOULD
_ANSWERS, _STREAMS = ("OAI-002",), ("OAI-002", "OAI-007")

CHECKS = (
    Check("OAI-001", _MUST, "GET /v1/models lists models with id and object.", f"{_API}, Models", _models),
    Check("OAI-002", _MUST, "POST /v1/chat/completions returns a chat.completion with a text.", f"{_API}, Chat",
          _answers),
    Check("OAI-003", _MUST, "A choice has the role assistant and a finish_reason.", f"{_API}, Chat", _role,
          requires=_ANSWERS),
    Check("OAI-004", _SHOULD, "usage counts the tokens, and total_tokens is their sum.", f"{_API}, Chat", _counts,
          requires=_ANSWERS),
    Check("OAI-005", _MUST, "max_tokens limits the answer, whose finish_reason is then length.", f"{_API}, Chat",
          _max_tokens, requires=("OAI-002", "OAI-004")),
    Check("OAI-006", _MUST, "The answer ends before a stop sequence.", f"{_API}, Chat", _stop, requires=_ANSWERS),
    Check("OAI-007", _MUST, "The streamed parts make up the same answer.", f"{_API}, Streaming", _streams,
          requires=_ANSWERS),
    Check("OAI-008", _SHOULD, "A stream ends with data: [DONE].", f"{_API}, Streaming; {_SDK} needs it not", _done,
          requires=_STREAMS),
    Check("OAI-009", _MUST, "The last choice of a stream has a finish_reason.", f"{_API}, Streaming", _finish,
          requires=_STREAMS),
    Check("OAI-010", _SHOULD, "include_usage adds a last part with usage and no choices.", f"{_API}, Streaming",
          _streamed_usage, requires=(*_STREAMS, "OAI-004")),
    Check("OAI-011", _SHOULD, "n: 2 gives two choices or is refused.", f"{_API}, Chat", _several, requires=_ANSWERS),
    Check("OAI-012", _MUST, "An unknown model is answered with 404.", f"{_API}, Errors; vLLM",
          lambda probe: expect_status(probe.post_json(_CHAT, {**_request(probe), "model": UNKNOWN}), 404),
          requires=_ANSWERS),
    Check("OAI-013", _MUST, "Invalid JSON is refused with 4xx.", f"{_API}, Errors",
          lambda probe: expect_error(probe.post(_CHAT, b'{"messages": ['))),
    Check("OAI-014", _MUST, "Refusals have an error object with message and type.", f"{_SDK} shows no other text",
          _error_object, requires=_ANSWERS),
    Check("OAI-015", _MUST, "POST /v1/embeddings returns a vector for each text, in their order.",
          f"{_API}, Embeddings", _embeds),
    Check("OAI-016", _SHOULD, "encoding_format base64 gives the same vectors as 32-bit floats.",
          f"{_SDK} requests it, and accepts lists", _embeds_base64, requires=("OAI-015",)),
)  # fmt: skip
