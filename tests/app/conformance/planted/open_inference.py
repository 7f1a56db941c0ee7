"""Faults in an engine of the Open Inference Protocol over REST."""

from collections.abc import Callable
from typing import Any

import httpx

from tests.app.conformance.engines import Fault, Spoil
from tests.app.conformance.planted.spoiling import (
    answers,
    asking,
    asking_at,
    blaming_itself,
    detailed,
    headed,
    where,
)


def outputs(change: Callable[[dict[str, Any]], object]) -> Spoil:
    def change_all(answer: Any) -> None:
        for output in answer["outputs"]:
            change(output)

    return answers(change_all, "/infer")


def strings(answer: Any) -> None:
    for spec in answer.get("outputs", ()):
        if "data" not in spec and spec["datatype"] == "BYTES":
            spec["datatype"] = "STRING"


def as_text(output: Any) -> None:
    output["data"] = [str(each) for each in output["data"]] if "data" in output else []


def no_extensions(answer: Any) -> None:
    if "extensions" in answer:
        answer["extensions"] = None


def repeated(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    """An output that is asked for comes twice."""
    if status == 200 and b'"outputs":[' in request.content:
        answer["outputs"] *= 2
    return status, answer


def cut(_: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    """The last byte of binary answers is lost."""
    return status, answer[:-1] if isinstance(answer, bytes) else answer


def code(path: str, status: int) -> Spoil:
    return where(lambda r: r.url.path.endswith(path), status)


SPOILT: dict[str, tuple[str, str, Spoil]] = {
    "no extensions": ("half_plus_two", "V2-001", answers(no_extensions)),
    "not live": ("half_plus_two", "V2-002", code("/health/live", 400)),
    "not ready": ("half_plus_two", "V2-003", code("/health/ready", 503)),
    "ready without a word": ("half_plus_two", "V2-004", answers(lambda a: a.clear(), "/health/")),
    "a model not ready": ("half_plus_two", "V2-005", code("/half_plus_two/ready", 503)),
    "platform": ("half_plus_two", "V2-006", answers(lambda a: a.pop("platform", 0))),
    "datatype STRING": ("detector", "V2-007", answers(strings)),
    "no shape": ("half_plus_two", "V2-008", outputs(lambda o: o.pop("shape"))),
    "JSON as text": ("half_plus_two", "V2-009", headed("/infer", content_type="text/html")),
    "an undeclared output": ("half_plus_two", "V2-010", outputs(lambda o: o.update(name="other"))),
    "another datatype": ("half_plus_two", "V2-011", outputs(lambda o: o.update(datatype="FP64"))),
    "another rank": ("half_plus_two", "V2-012", outputs(lambda o: o.update(shape=[*o["shape"], 1]))),
    "too few elements": ("half_plus_two", "V2-013", outputs(lambda o: o["data"].pop() if "data" in o else 0)),
    "numbers as text": ("half_plus_two", "V2-014", outputs(as_text)),
    "no id": ("half_plus_two", "V2-015", answers(lambda a: a.pop("id", 0), "/infer")),
    "another model": ("half_plus_two", "V2-016", answers(lambda a: a.update(model_name="x"), "/infer")),
    "an output twice": ("half_plus_two", "V2-017", repeated),
    "any output": ("half_plus_two", "V2-018", asking(b'"outputs":[{"name":"conform', 200, {"outputs": []})),
    "unknown models are 400": ("half_plus_two", "V2-019", asking_at("/conform-unknown", 400)),
    "refusals with detail": ("half_plus_two", "V2-020", detailed),
    "anything is JSON": ("half_plus_two", "V2-021", where(lambda r: r.content.endswith(b"["), 200, {"outputs": []})),
    "bad JSON, 500": ("half_plus_two", "V2-022", blaming_itself),
    "no inputs, 200": ("half_plus_two", "V2-023", asking(b'{"id":"conform"}', 200, {"outputs": []})),
    "any datatype": ("half_plus_two", "V2-024", asking(b"CONFORM", 200, {"outputs": []})),
    "a wrong shape, 500": ("half_plus_two", "V2-025", asking(b'"shape":[2]', 500)),
    "unknown parameters refused": ("half_plus_two", "V2-026", asking(b'"parameters":{"conform-unknown":1}')),
    "no versions": ("half_plus_two", "V2-027", asking_at("/versions/")),
}
"""The model that an answer is spoilt of, the clause that names it, and how."""

_NAME = "v2"

FAULTS: dict[str, Fault] = {
    **{name: Fault(protocol=_NAME, model=m, clause=c, spoil=spoil) for name, (m, c, spoil) in SPOILT.items()},
    "a byte lost": Fault(protocol=_NAME, model="half_plus_two", clause="V2-028", spoil=cut, raw=True),
}
