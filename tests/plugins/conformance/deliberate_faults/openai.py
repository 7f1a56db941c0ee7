"""Deliberate faults in an engine of OpenAI's API."""

from typing import Any

import httpx

from tests.plugins.conformance.deliberate_faults.spoiling import (
    change_answers,
    change_body,
    replace_containing,
    server_error_for_bad_json,
)
from tests.plugins.conformance.engines import AnswerFault, AnswerFaults, Fault, RequestFault, answer_faults

CHAT = "chat/completions"


def text_error(_: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    """Answer errors as most other protocols do."""
    return (status, {"error": "no"}) if status >= 400 else (status, answer)


def wrong_sum(answer: Any) -> None:
    answer["usage"]["total_tokens"] += 1


def always_stop(answer: Any) -> None:
    answer["choices"][0]["finish_reason"] = "stop"


def double_base64(answer: Any) -> None:
    for item in answer["data"]:
        if isinstance(item["embedding"], str):
            item["embedding"] *= 2


def replaced_bytes(old: bytes, new: bytes) -> AnswerFault:
    def fault(_: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        return status, answer.replace(old, new) if isinstance(answer, bytes) else answer

    return fault


def without_field(field: str) -> RequestFault:
    return change_body(lambda body: body.pop(field, 0))


ANSWER_FAULTS: AnswerFaults = {
    "a bare list of models": ("OAI-001", change_answers(lambda a: a.pop("object", 0), "/v1/models")),
    "another object": ("OAI-002", change_answers(lambda a: a.update(object="completion"), CHAT)),
    "no role": ("OAI-003", change_answers(lambda a: a["choices"][0]["message"].pop("role"), CHAT)),
    "a wrong sum": ("OAI-004", change_answers(wrong_sum, CHAT)),
    "always stop": ("OAI-005", change_answers(always_stop, CHAT)),
    "an empty stream": ("OAI-007", replaced_bytes(b'"content":', b'"text":')),
    "no end": ("OAI-008", replaced_bytes(b"data: [DONE]", b"")),
    "no reason": ("OAI-009", replaced_bytes(b'"finish_reason":"stop"', b'"finish_reason":null')),
    "no streamed usage": ("OAI-010", replaced_bytes(b'"usage":{', b'"tokens":{')),
    "another status": ("OAI-012", replace_containing(b"conform-unknown", 400, {"error": {"message": "", "type": ""}})),
    "bad JSON, 500": ("OAI-013", server_error_for_bad_json),
    "errors as text": ("OAI-014", text_error),
}


EMBEDDINGS_FAULTS: AnswerFaults = {
    "vectors in another order": ("OAI-015", change_answers(lambda a: a["data"].reverse(), "embeddings")),
    "a bare vector": ("OAI-015", change_answers(lambda a: a["data"].__setitem__(0, [0.5]), "embeddings")),
    "base64 of 64-bit floats": ("OAI-016", change_answers(double_base64, "embeddings")),
}

FAULTS: dict[str, Fault] = {
    **answer_faults("openai", "vlm", ANSWER_FAULTS, raw=True),
    **answer_faults("openai", "embedder", EMBEDDINGS_FAULTS),
    **{
        f"{field} ignored": Fault(protocol="openai", model="vlm", check=check, change_request=without_field(field))
        for field, check in (("stop", "OAI-006"), ("n", "OAI-011"))
    },
}
