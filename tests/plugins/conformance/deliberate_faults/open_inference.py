"""Deliberate faults in an engine of the Open Inference Protocol over REST."""

from collections.abc import Callable
from typing import Any

import httpx

from tests.plugins.conformance.deliberate_faults.spoiling import (
    change_answers,
    detail_errors,
    replace_at,
    replace_containing,
    replace_when,
    server_error_for_bad_json,
    set_headers,
)
from tests.plugins.conformance.engines import AnswerFault, Fault


def change_outputs(change: Callable[[dict[str, Any]], object]) -> AnswerFault:
    def change_all(answer: Any) -> None:
        for output in answer["outputs"]:
            change(output)

    return change_answers(change_all, "/infer")


def datatype_string(answer: Any) -> None:
    for spec in answer.get("outputs", ()):
        if "data" not in spec and spec["datatype"] == "BYTES":
            spec["datatype"] = "STRING"


def numbers_as_text(output: Any) -> None:
    output["data"] = [str(value) for value in output["data"]] if "data" in output else []


def no_extensions(answer: Any) -> None:
    if "extensions" in answer:
        answer["extensions"] = None


def repeated_outputs(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    """Return requested outputs twice."""
    if status == 200 and b'"outputs":[' in request.content:
        answer["outputs"] *= 2
    return status, answer


def truncated_binary(_: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    """Drop the last byte of binary answers."""
    return status, answer[:-1] if isinstance(answer, bytes) else answer


def replace_status(path: str, status: int) -> AnswerFault:
    return replace_when(lambda r: r.url.path.endswith(path), status)


ANSWER_FAULTS: dict[str, tuple[str, str, AnswerFault]] = {
    "no extensions": ("half_plus_two", "V2-001", change_answers(no_extensions)),
    "not live": ("half_plus_two", "V2-002", replace_status("/health/live", 400)),
    "not ready": ("half_plus_two", "V2-003", replace_status("/health/ready", 503)),
    "empty health answers": ("half_plus_two", "V2-004", change_answers(lambda a: a.clear(), "/health/")),
    "a model not ready": ("half_plus_two", "V2-005", replace_status("/half_plus_two/ready", 503)),
    "no platform": ("half_plus_two", "V2-006", change_answers(lambda a: a.pop("platform", 0))),
    "datatype STRING": ("detector", "V2-S01", change_answers(datatype_string)),
    "no shape": ("half_plus_two", "V2-008", change_outputs(lambda o: o.pop("shape"))),
    "JSON as text": ("half_plus_two", "V2-009", set_headers("/infer", content_type="text/html")),
    "an undeclared output": ("half_plus_two", "V2-S02", change_outputs(lambda o: o.update(name="other"))),
    "another datatype": ("half_plus_two", "V2-S03", change_outputs(lambda o: o.update(datatype="FP64"))),
    "another rank": ("half_plus_two", "V2-S04", change_outputs(lambda o: o.update(shape=[*o["shape"], 1]))),
    "too few elements": ("half_plus_two", "V2-013", change_outputs(lambda o: o["data"].pop() if "data" in o else 0)),
    "numbers as text": ("half_plus_two", "V2-014", change_outputs(numbers_as_text)),
    "no id": ("half_plus_two", "V2-S05", change_answers(lambda a: a.pop("id", 0), "/infer")),
    "another model": ("half_plus_two", "V2-S06", change_answers(lambda a: a.update(model_name="x"), "/infer")),
    "an output twice": ("half_plus_two", "V2-S07", repeated_outputs),
    "any output accepted": (
        "half_plus_two",
        "V2-S09",
        replace_containing(b'"outputs":[{"name":"conform', 200, {"outputs": []}),
    ),
    "unknown models are 400": ("half_plus_two", "V2-019", replace_at("/conform-unknown", 400)),
    "errors in a field detail": ("half_plus_two", "V2-020", detail_errors),
    "any JSON accepted": (
        "half_plus_two",
        "V2-021",
        replace_when(lambda r: r.content.endswith(b"["), 200, {"outputs": []}),
    ),
    "bad JSON, 500": ("half_plus_two", "V2-022", server_error_for_bad_json),
    "no inputs, 200": ("half_plus_two", "V2-023", replace_containing(b'{"id":"conform"}', 200, {"outputs": []})),
    "any datatype accepted": ("half_plus_two", "V2-S10", replace_containing(b"CONFORM", 200, {"outputs": []})),
    "a wrong shape, 500": ("half_plus_two", "V2-S11", replace_containing(b'"shape":[2]', 500)),
    "unknown parameters refused": (
        "half_plus_two",
        "V2-S08",
        replace_containing(b'"parameters":{"conform-unknown":1}'),
    ),
    "no versions": ("half_plus_two", "V2-027", replace_at("/versions/")),
}
"""For each fault the model, the check that must fail, and the change of the answer."""

_NAME = "v2"

FAULTS: dict[str, Fault] = {
    **{
        name: Fault(protocol=_NAME, model=m, check=c, change_answer=change_answer)
        for name, (m, c, change_answer) in ANSWER_FAULTS.items()
    },
    "a byte lost": Fault(
        protocol=_NAME, model="half_plus_two", check="V2-028", change_answer=truncated_binary, raw=True
    ),
}
