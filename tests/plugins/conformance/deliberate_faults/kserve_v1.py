"""Deliberate faults in an engine of KServe's V1."""

from tests.plugins.conformance.deliberate_faults.spoiling import (
    change_answers,
    errors_in,
    rename_field,
    replace_at,
    replace_containing,
    replace_field,
    replace_when,
    server_error_for_bad_json,
    set_headers,
)
from tests.plugins.conformance.engines import AnswerFaults, faults_of

ANSWER_FAULTS: AnswerFaults = {
    "not alive": ("V1-001", change_answers(lambda a: a.pop("status", 0))),
    "models that are objects": ("V1-002", replace_field("models", lambda names: [{"name": name} for name in names])),
    "never ready": ("V1-003", replace_field("ready", lambda _: False)),
    "unknown models are 400": ("V1-004", replace_at("/conform-unknown", 400)),
    "results": ("V1-005", rename_field("predictions", "results")),
    "one prediction": ("V1-006", replace_field("predictions", lambda found: found[:1])),
    "predictions in reverse": ("V1-007", replace_field("predictions", lambda found: found[::-1])),
    "only instances accepted": ("V1-008", replace_containing(b'"inputs"')),
    "JSON as text": ("V1-009", set_headers(":predict", content_type="text/plain")),
    "bad JSON, 500": ("V1-010", server_error_for_bad_json),
    "no instances, 500": ("V1-011", replace_containing(b'"conform"', 500)),
    "no list, 500": ("V1-012", replace_when(lambda r: r.content == b'{"instances":1}', 500)),
    "errors in a field detail": ("V1-013", errors_in("detail")),
    "no events": ("V1-014", set_headers(":predict", ce_id=None)),
}
FAULTS = faults_of("v1", "half_plus_two", ANSWER_FAULTS)
