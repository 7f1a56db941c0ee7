"""Faults in an engine of chariot-v2."""

from typing import Any

import httpx

from tests.app.conformance.engines import Fault, Spoil
from tests.app.conformance.planted.items import faults
from tests.app.conformance.planted.spoiling import answers, asking, asking_at, where


def typed(kind: str, status: int = 415) -> Spoil:
    """An engine that refuses bodies of a Content-Type."""
    return where(lambda r: r.method == "POST" and r.headers.get("content-type", "") == kind, status)


def nested(answer: Any) -> None:
    if "output" in answer:
        answer["output"] = [answer["output"]]


def only_error(_: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    return (status, {"error": "no"}) if status == 400 else (status, answer)


def reversed_lines(_: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    if isinstance(answer, bytes) and status == 200:
        return status, b"".join(line + b"\n" for line in reversed(answer.splitlines()))
    return status, answer


SPOILT: dict[str, tuple[str, Spoil]] = {
    "results": ("CV2-001", answers(lambda a: a.update(results=a.pop("output")) if "output" in a else None)),
    "no slash at the end": ("CV2-002", asking_at("/infer/")),
    "items in a list": ("CV2-003", answers(nested)),
    "a Content-Type is needed": ("CV2-004", typed("")),
    "no lines": ("CV2-005", typed("application/jsonl")),
    "no images": ("CV2-007", typed("image/png")),
    "any header": ("CV2-008", where(lambda r: r.headers.get("chariot-inference-parameters") == "{", 200)),
    "not JSON, 500": ("CV2-009", where(lambda r: r.content == b'{"input": ', 500)),
    "not base64, 500": ("CV2-010", asking(b"%%%", 500)),
    "no input, 500": ("CV2-011", where(lambda r: r.content == b'{"parameters":{}}', 500)),
    "an error for text": ("CV2-012", only_error),
}
"""The clause that names it, and how an answer is spoilt."""

_NAME = "chariot-v2"

FAULTS: dict[str, Fault] = {
    **faults(_NAME, "CV2"),
    **{name: Fault(protocol=_NAME, model="detector", clause=c, spoil=spoil) for name, (c, spoil) in SPOILT.items()},
    "lines backwards": Fault(protocol=_NAME, model="detector", clause="CV2-006", spoil=reversed_lines, raw=True),
}
