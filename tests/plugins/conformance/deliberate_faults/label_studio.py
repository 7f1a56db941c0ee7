"""Deliberate faults in an ML backend of Label Studio."""

from tests.plugins.conformance.deliberate_faults.spoiling import (
    change_answers,
    replace_at,
    replace_containing,
    server_error_for_bad_json,
)
from tests.plugins.conformance.engines import AnswerFaults, faults_of

ANSWER_FAULTS: AnswerFaults = {
    "another status": ("LS-001", change_answers(lambda a: a.update(status="ok"), "/health")),
    "one result for all": ("LS-003", change_answers(lambda a: a["results"].pop(), "/predict")),
    "no score": ("LS-004", change_answers(lambda a: a["results"][0].pop("score"), "/predict")),
    "another tag": ("LS-005",
        change_answers(lambda a: a["results"][0]["result"][0].update(from_name="another"), "/predict")),
    "pixels": ("LS-006",
        change_answers(lambda a: a["results"][0]["result"][0]["value"].update(x=640, y=10), "/predict")),
    "another version": ("LS-007", change_answers(lambda a: a["results"][0].pop("model_version"), "/predict")),
    "one image fails all": ("LS-008", replace_containing(b"base64,AAAA", 500)),
    "bad JSON, 500": ("LS-009", server_error_for_bad_json),
    "no webhook": ("LS-010", replace_at("/webhook")),
    "no version": ("LS-002 LS-007", change_answers(lambda a: a.update(model_version=None), "/setup")),
}  # fmt: skip
FAULTS = faults_of("label-studio", "vlm", ANSWER_FAULTS)
