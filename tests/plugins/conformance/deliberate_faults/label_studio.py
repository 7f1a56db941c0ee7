"""Deliberate faults in an ML backend of Label Studio."""

from typing import Any

from tests.plugins.conformance.deliberate_faults.spoiling import (
    change_answers,
    replace_at,
    replace_containing,
    server_error_for_bad_json,
)
from tests.plugins.conformance.engines import AnswerFaults, Fault, answer_faults


def rename_tag(answer: Any) -> None:
    answer["results"][0]["result"][0]["from_name"] = "another"


def pixels(answer: Any) -> None:
    answer["results"][0]["result"][0]["value"].update(x=640, y=10)


ANSWER_FAULTS: AnswerFaults = {
    "another status": ("LS-001", change_answers(lambda a: a.update(status="ok"), "/health")),
    "one result for all": ("LS-003", change_answers(lambda a: a["results"].pop(), "/predict")),
    "no score": ("LS-004", change_answers(lambda a: a["results"][0].pop("score"), "/predict")),
    "another tag": ("LS-005", change_answers(rename_tag, "/predict")),
    "pixels": ("LS-006", change_answers(pixels, "/predict")),
    "another version": ("LS-007", change_answers(lambda a: a["results"][0].pop("model_version"), "/predict")),
    "one image fails all": ("LS-008", replace_containing(b"base64,AAAA", 500)),
    "bad JSON, 500": ("LS-009", server_error_for_bad_json),
    "no webhook": ("LS-010", replace_at("/webhook")),
}
FAULTS: dict[str, Fault] = {
    **answer_faults("label-studio", "vlm", ANSWER_FAULTS),
    "no version": Fault(
        protocol="label-studio",
        model="vlm",
        check="LS-002",
        also_fails=("LS-007",),
        change_answer=change_answers(lambda a: a.update(model_version=None), "/setup"),
    ),
}
