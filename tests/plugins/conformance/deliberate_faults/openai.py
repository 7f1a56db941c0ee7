"""Deliberate faults in an engine of OpenAI's API."""

from typing import Any

from tests.plugins.conformance.deliberate_faults.spoiling import (
    change_answers,
    change_body,
    change_bytes,
    change_each,
    errors_in,
    replace_containing,
    server_error_for_bad_json,
)
from tests.plugins.conformance.engines import AnswerFault, AnswerFaults, RequestFaults, faults_of

CHAT = "chat/completions"


def wrong_sum(answer: Any) -> None:
    answer["usage"]["total_tokens"] += 1


def double_base64(item: Any) -> None:
    if isinstance(item["embedding"], str):
        item["embedding"] *= 2


def replaced_bytes(old: bytes, new: bytes) -> AnswerFault:
    return change_bytes(lambda content: content.replace(old, new))


ANSWER_FAULTS: AnswerFaults = {
    "a bare list of models": ("OAI-001", change_answers(lambda a: a.pop("object", 0), "/v1/models")),
    "another object": ("OAI-002", change_answers(lambda a: a.update(object="completion"), CHAT)),
    "no role": ("OAI-003", change_each("choices", lambda c: c["message"].pop("role"), CHAT)),
    "a wrong sum": ("OAI-004", change_answers(wrong_sum, CHAT)),
    "always stop": ("OAI-005", change_each("choices", lambda c: c.update(finish_reason="stop"), CHAT)),
    "an empty stream": ("OAI-007", replaced_bytes(b'"content":', b'"text":')),
    "no end": ("OAI-008", replaced_bytes(b"data: [DONE]", b"")),
    "no reason": ("OAI-009", replaced_bytes(b'"finish_reason":"stop"', b'"finish_reason":null')),
    "no streamed usage": ("OAI-010", replaced_bytes(b'"usage":{', b'"tokens":{')),
    "another status": ("OAI-012", replace_containing(b"conform-unknown", 400, {"error": {"message": "", "type": ""}})),
    "bad JSON, 500": ("OAI-013", server_error_for_bad_json),
    "errors as text": ("OAI-014", errors_in("error")),
}
EMBEDDINGS_FAULTS: AnswerFaults = {
    "vectors in another order": ("OAI-015", change_answers(lambda a: a["data"].reverse(), "embeddings")),
    "a bare vector": ("OAI-015", change_answers(lambda a: a["data"].__setitem__(0, [0.5]), "embeddings")),
    "base64 of 64-bit floats": ("OAI-016", change_each("data", double_base64, "embeddings")),
}
REQUEST_FAULTS: RequestFaults = {
    "stop ignored": ("OAI-006", change_body(lambda body: body.pop("stop", 0))),
    "n ignored": ("OAI-011", change_body(lambda body: body.pop("n", 0))),
}
FAULTS = {
    **faults_of("openai", "vlm", ANSWER_FAULTS, raw=True),
    **faults_of("openai", "embedder", EMBEDDINGS_FAULTS),
    **faults_of("openai", "vlm", REQUEST_FAULTS, "change_request"),
}
