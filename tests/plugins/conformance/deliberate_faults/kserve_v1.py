"""Deliberate faults in an engine of KServe's V1."""

from typing import Any

from tests.plugins.conformance.deliberate_faults.spoiling import (
    change_answers,
    detail_errors,
    replace_at,
    replace_containing,
    replace_when,
    server_error_for_bad_json,
    set_headers,
)
from tests.plugins.conformance.engines import AnswerFaults, answer_faults


def first_prediction_only(answer: Any) -> None:
    answer["predictions"] = answer["predictions"][:1]


def models_as_objects(answer: Any) -> None:
    if "models" in answer:
        answer["models"] = [{"name": model} for model in answer["models"]]


ANSWER_FAULTS: AnswerFaults = {
    "not alive": ("V1-001", change_answers(lambda a: a.pop("status", 0))),
    "models that are objects": ("V1-002", change_answers(models_as_objects)),
    "never ready": ("V1-003", change_answers(lambda a: a.update(ready=False) if "ready" in a else 0)),
    "unknown models are 400": ("V1-004", replace_at("/conform-unknown", 400)),
    "results": ("V1-005", change_answers(lambda a: a.update(results=a.pop("predictions")), ":predict")),
    "one prediction": ("V1-006", change_answers(first_prediction_only, ":predict")),
    "predictions in reverse": ("V1-007", change_answers(lambda a: a["predictions"].reverse(), ":predict")),
    "only instances accepted": ("V1-008", replace_containing(b'"inputs"')),
    "JSON as text": ("V1-009", set_headers(":predict", content_type="text/plain")),
    "bad JSON, 500": ("V1-010", server_error_for_bad_json),
    "no instances, 500": ("V1-011", replace_containing(b'"conform"', 500)),
    "no list, 500": ("V1-012", replace_when(lambda r: r.content == b'{"instances":1}', 500)),
    "errors in a field detail": ("V1-013", detail_errors),
    "no events": ("V1-014", set_headers(":predict", ce_id=None)),
}
FAULTS = answer_faults("v1", "half_plus_two", ANSWER_FAULTS)
