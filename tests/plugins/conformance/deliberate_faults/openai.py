"""Deliberate faults in an engine of OpenAI's API."""

from typing import Any

import httpx

from tests.plugins.conformance.deliberate_faults.spoiling import (
    change_answers,
    change_body,
    replace_containing,
    server_error_for_bad_json,
)
from tests.plugins.conformance.engines import AnswerFault, Fault, RequestFault

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
    """Replace bytes in streams."""

    def fault(_: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        return status, answer.replace(old, new) if isinstance(answer, bytes) else answer

    return fault


ANSWER_FAULTS: dict[str, tuple[str, AnswerFault]] = {
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
"""For each fault the check that must fail, and the change of the answer."""

REQUEST_FAULTS: dict[str, tuple[str, RequestFault]] = {
    "stop ignored": ("OAI-006", change_body(lambda body: body.pop("stop", 0))),
    "n ignored": ("OAI-011", change_body(lambda body: body.pop("n", 0))),
}
"""For each fault the check that must fail, and the change of the request."""

EMBEDDINGS_FAULTS: dict[str, tuple[str, AnswerFault]] = {
    "vectors in another order": (
        "OAI-015",
        change_answers(lambda a: a["data"].reverse(), "embeddings"),
    ),
    "a bare vector": ("OAI-015", change_answers(lambda a: a["data"].__setitem__(0, [0.5]), "embeddings")),
    "base64 of 64-bit floats": ("OAI-016", change_answers(double_base64, "embeddings")),
}
"""As `ANSWER_FAULTS`, for a model that embeds texts."""

FAULTS = (
    {
        name: Fault(protocol="openai", model="vlm", check=check, change_answer=change_answer, raw=True)
        for name, (check, change_answer) in ANSWER_FAULTS.items()
    }
    | {
        name: Fault(protocol="openai", model="vlm", check=check, change_request=change_request)
        for name, (check, change_request) in REQUEST_FAULTS.items()
    }
    | {
        name: Fault(protocol="openai", model="embedder", check=check, change_answer=change_answer)
        for name, (check, change_answer) in EMBEDDINGS_FAULTS.items()
    }
)
