"""Check the chat completions and embeddings of OpenAI's API."""

from typing import Any

import numpy as np

from app.plugins.conformance.check import MUST, SHOULD, Check, NotApplicableError, Protocol, expect, expect_same
from app.plugins.conformance.client.exchange import Exchange, InconclusiveError, decode_object, quote
from app.plugins.conformance.client.model_names import model_name
from app.plugins.conformance.client.probe import Probe
from app.plugins.conformance.tensors import ENCODED_IMAGES, UNKNOWN, expect_form, has_fields, is_list, is_object

_CHAT = "/v1/chat/completions"
_EMBEDDINGS = "/v1/embeddings"
_TEXTS = ("a red car", "a blue star")
_DONE = b"[DONE]"
_FINISHED = ("stop", "length")


def _request(probe: Probe, **members: object) -> dict[str, object]:
    """Return a request that the engine accepts: the given one, a question about an image, or a text.

    Without one, the result is inconclusive, or not applicable to a model that embeds texts.
    """
    model = model_name(probe, "/v1/models")
    if probe.target.request is not None:
        given = {"model": model, **probe.target.request}
        probe.post_json(_CHAT, given).expect_accepted()
        return {**given, **members}
    text = {"type": "text", "text": "What is in the picture?"}
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{ENCODED_IMAGES[0]}"}}
    for content in ([text, image], "What is the capital of France?"):
        request = {"model": model, "messages": [{"role": "user", "content": content}], "temperature": 0}
        if probe.post_json(_CHAT, request).ok:
            return {**request, **members}
    if probe.post_json(_EMBEDDINGS, {"model": model, "input": _TEXTS, "encoding_format": "float"}).ok:
        raise NotApplicableError("The model answers with vectors")
    raise InconclusiveError("The engine refuses every generated request; give a body with --request")


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
    is_complete = has_fields(usage, prompt_tokens=int, completion_tokens=int, total_tokens=int)
    expect(is_complete, "prompt_tokens, completion_tokens and total_tokens", usage)
    return usage


def _events(exchange: Exchange) -> list[bytes]:
    """Return the data of the events of a stream."""
    exchange.expect_status(200)
    exchange.expect_content_type("text/event-stream")
    lines = exchange.body.splitlines()
    return [line.removeprefix(b"data:").strip() for line in lines if line.startswith(b"data:")]


def _parts(exchange: Exchange) -> list[dict[str, Any]]:
    """Return the parts of a stream, without the last event."""
    return [decode_object(event) for event in _events(exchange) if event != _DONE]


def _models(probe: Probe) -> None:
    got = probe.get("/v1/models").expect_object()
    models: Any = got.get("data")
    expect(got.get("object") == "list" and is_list(models), '"object": "list" and data', got)
    for model in models:
        is_model = has_fields(model, id=str) and model.get("object") == "model"
        expect(is_model, "id and object of each model", model)


def _answers(probe: Probe) -> None:
    answer = _ask(probe).expect_object()
    _text(answer)
    is_completion = has_fields(answer, id=str) and answer.get("object") == "chat.completion"
    expect(is_completion, "id and object of a chat.completion", answer)


def _role(probe: Probe) -> None:
    choice = _choice(_ask(probe).expect_object())
    is_finished = choice["message"].get("role") == "assistant" and choice.get("finish_reason") in _FINISHED
    expect(is_finished, "the role assistant, and finish_reason stop or length", choice)


def _counts(probe: Probe) -> None:
    usage = _usage(_ask(probe).expect_object())
    is_sum = usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] and usage["prompt_tokens"] > 0
    expect(is_sum, "total_tokens to be the sum of the others", usage)


def _max_tokens(probe: Probe) -> None:
    answer = _ask(probe, max_tokens=1).expect_object()
    expect(_usage(answer)["completion_tokens"] <= 1, "one token", answer)
    is_cut = _choice(answer).get("finish_reason") == "length" or not _text(answer)
    expect(is_cut, "finish_reason length after max_tokens", answer)


def _stop(probe: Probe) -> None:
    text = _text(_ask(probe).expect_object())
    stop = text[len(text) // 2 :][:3]
    if not stop.strip():
        raise InconclusiveError("The answer is too short to be stopped")
    stopped = _text(_ask(probe, stop=[stop]).expect_object())
    expect(stop not in stopped, f"an answer that ends before {quote(stop)}", stopped)


def _streams(probe: Probe) -> None:
    parts = _parts(_ask(probe, stream=True))
    deltas = [part["choices"][0].get("delta", {}) for part in parts if part.get("choices")]
    streamed = "".join(delta.get("content") or "" for delta in deltas)
    complete = _text(_ask(probe).expect_object())
    expect_same(streamed, complete, f"the parts of {quote(complete)}")


def _finish(probe: Probe) -> None:
    last = [part["choices"][0] for part in _parts(_ask(probe, stream=True)) if part.get("choices")][-1:]
    expect(last and last[0].get("finish_reason") in _FINISHED, "finish_reason in the last choice", last)


def _streamed_usage(probe: Probe) -> None:
    _usage(_ask(probe).expect_object())
    last = _parts(_ask(probe, stream=True, stream_options={"include_usage": True}))[-1:]
    has_usage = last and has_fields(last[0], usage=dict) and last[0].get("choices") == []
    expect(has_usage, "usage and no choices in the last part", last)


def _several(probe: Probe) -> None:
    exchange = _ask(probe, n=2, temperature=1)
    if exchange.rejected:
        return
    choices = exchange.expect_object().get("choices")
    expect(is_list(choices) and len(choices) == 2, "two choices or a refusal", exchange.body)


def _error_object(probe: Probe) -> None:
    for exchange in (
        _ask(probe, model=UNKNOWN),
        probe.post_json(_CHAT, {"model": model_name(probe, "/v1/models"), "messages": 1}),
    ):
        has_error = not exchange.rejected or has_fields(exchange.object().get("error"), message=str, type=str)
        expect(has_error, "error.message and error.type", exchange.body)


def _embeddings(probe: Probe, **members: object) -> list[Any]:
    """Return the embeddings of `_TEXTS`, unless the model embeds no texts, which is not applicable."""
    exchange = probe.post_json(_EMBEDDINGS, {"model": model_name(probe, "/v1/models"), "input": _TEXTS, **members})
    if exchange.rejected and not exchange.unauthorized:
        raise NotApplicableError("The model embeds no texts")
    data = exchange.expect_object().get("data")
    return expect_form(data, list[dict[str, Any]], "a list of objects in data")


def _embeds(probe: Probe) -> None:
    for index, item in enumerate(data := _embeddings(probe, encoding_format="float")):
        has_vector = has_fields(item, embedding=list) and item["embedding"]
        is_embedding = has_vector and item.get("object") == "embedding" and item.get("index") == index
        expect(is_embedding, f"an embedding with the index {index} and a vector", item)
    expect_same(len(data), len(_TEXTS), f"{len(_TEXTS)} embeddings")


def _embeds_base64(probe: Probe) -> None:
    floats = _embeddings(probe, encoding_format="float")
    for item, encoded in zip(floats, _embeddings(probe, encoding_format="base64"), strict=False):
        vector = np.array(item["embedding"], "<f4")
        data = expect_form(encoded.get("embedding"), bytes, "base64")
        is_same = len(data) == vector.nbytes and np.allclose(np.frombuffer(data, "<f4"), vector, rtol=1e-6, atol=1e-6)
        expect(is_same, f"{len(vector)} little-endian 32-bit floats of the same vector", data)


_API = "OpenAI, API reference"
_SDK = "openai-python"
_ANSWERS, _STREAMS = ("OAI-002",), ("OAI-007",)

CHECKS = (
    Check("OAI-001", MUST, "GET /v1/models lists models with id and object.", f"{_API}, Models", _models),
    Check("OAI-002", MUST, "POST /v1/chat/completions returns a chat.completion with a text.", f"{_API}, Chat",
          _answers),
    Check("OAI-003", MUST, "A choice has the role assistant and a finish_reason.", f"{_API}, Chat", _role,
          requires=_ANSWERS),
    Check("OAI-004", SHOULD, "usage counts the tokens, and total_tokens is their sum.", f"{_API}, Chat", _counts,
          requires=_ANSWERS),
    Check("OAI-005", MUST, "max_tokens limits the answer, whose finish_reason is then length.", f"{_API}, Chat",
          _max_tokens, requires=("OAI-004",)),
    Check("OAI-006", MUST, "The answer ends before a stop sequence.", f"{_API}, Chat", _stop, requires=_ANSWERS),
    Check("OAI-007", MUST, "The streamed parts make up the same answer.", f"{_API}, Streaming", _streams,
          requires=_ANSWERS),
    Check("OAI-008", SHOULD, "A stream ends with data: [DONE].", f"{_API}, Streaming; {_SDK} needs it not",
          lambda probe: expect_same(_events(_ask(probe, stream=True))[-1:], [_DONE], "data: [DONE] at the end"),
          requires=_STREAMS),
    Check("OAI-009", MUST, "The last choice of a stream has a finish_reason.", f"{_API}, Streaming", _finish,
          requires=_STREAMS),
    Check("OAI-010", SHOULD, "include_usage adds a last part with usage and no choices.", f"{_API}, Streaming",
          _streamed_usage, requires=(*_STREAMS, "OAI-004")),
    Check("OAI-011", SHOULD, "n: 2 gives two choices or is refused.", f"{_API}, Chat", _several, requires=_ANSWERS),
    Check("OAI-012", MUST, "An unknown model is answered with 404.", f"{_API}, Errors; vLLM",
          lambda probe: _ask(probe, model=UNKNOWN).expect_status(404), requires=_ANSWERS),
    Check("OAI-013", MUST, "Invalid JSON is refused with 4xx.", f"{_API}, Errors",
          lambda probe: probe.post(_CHAT, b'{"messages": [').expect_error()),
    Check("OAI-014", MUST, "Refusals have an error object with message and type.", f"{_SDK} shows no other text",
          _error_object, requires=_ANSWERS),
    Check("OAI-015", MUST, "POST /v1/embeddings returns a vector for each text, in their order.",
          f"{_API}, Embeddings", _embeds),
    Check("OAI-016", SHOULD, "encoding_format base64 gives the same vectors as 32-bit floats.",
          f"{_SDK} requests it, and accepts lists", _embeds_base64, requires=("OAI-015",)),
)  # fmt: skip

PROTOCOLS = (Protocol("openai", CHECKS),)
