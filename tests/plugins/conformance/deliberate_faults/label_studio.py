"""Deliberate faults in an ML backend of Label Studio."""

from typing import Any

from tests.plugins.conformance.deliberate_faults.spoiling import (
    change_answers,
    replace_at,
    replace_containing,
    server_error_for_bad_json,
)
from tests.plugins.conformance.engines import AnswerFault, Fault


def rename_tag(answer: Any) -> None:
    answer["results"][0]["result"][0]["from_name"] = "another"


def pixels(answer: Any) -> None:
    answer["results"][0]["result"][0]["value"].update(x=640, y=10)


FAULTS_BY_NAME: dict[str, tuple[str, AnswerFault]] = {
    "another status": ("LS-001", change_answers(lambda a: a.update(status="ok"), "/health")),
    "no version": ("LS-002", change_answers(lambda a: a.update(model_version=None), "/setup")),
    "one result for all": ("LS-003", change_answers(lambda a: a["results"].pop(), "/predict")),
    "no score": ("LS-004", change_answers(lambda a: a["results"][0].pop("score"), "/predict")),
    "another tag": ("LS-005", change_answers(rename_tag, "/predict")),
    "pixels": ("LS-006", change_answers(pixels, "/predict")),
    "another version": ("LS-007", change_answers(lambda a: a["results"][0].pop("model_version"), "/predict")),
    "one image fails all": ("LS-008", replace_containing(b"base64,AAAA", 500)),
    "bad JSON, 500": ("LS-009", server_error_for_bad_json),
    "no webhook": ("LS-010", replace_at("/webhook")),
}
"""For each fault the check that must fail, and the change of the answer."""

FAULTS = {
    name: Fault(
        protocol="label-studio",
        model="vlm",
        check=check,
        change_answer=change_answer,
        also_fails=("LS-007",) if check == "LS-002" else (),
    )
    for name, (check, change_answer) in FAULTS_BY_NAME.items()
}
