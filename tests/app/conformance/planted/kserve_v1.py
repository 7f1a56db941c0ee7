"""Faults in an engine of KServe's V1."""

from typing import Any

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


def first_only(answer: Any) -> None:
    answer["predictions"] = answer["predictions"][:1]


def objects(answer: Any) -> None:
    if "models" in answer:
        answer["models"] = [{"name": each} for each in answer["models"]]


SPOILT: dict[str, tuple[str, Spoil]] = {
    "not alive": ("V1-001", answers(lambda a: a.pop("status", 0))),
    "models that are objects": ("V1-002", answers(objects)),
    "never ready": ("V1-003", answers(lambda a: a.update(ready=False) if "ready" in a else 0)),
    "unknown models are 400": ("V1-004", asking_at("/conform-unknown", 400)),
    "results": ("V1-005", answers(lambda a: a.update(results=a.pop("predictions")), ":predict")),
    "one prediction": ("V1-006", answers(first_only, ":predict")),
    "backwards": ("V1-007", answers(lambda a: a["predictions"].reverse(), ":predict")),
    "instances alone": ("V1-008", asking(b'"inputs"')),
    "JSON as text": ("V1-009", headed(":predict", content_type="text/plain")),
    "bad JSON, 500": ("V1-010", blaming_itself),
    "no instances, 500": ("V1-011", asking(b'"conform"', 500)),
    "no list, 500": ("V1-012", where(lambda r: r.content == b'{"instances":1}', 500)),
    "refusals with detail": ("V1-013", detailed),
    "no events": ("V1-014", headed(":predict", ce_id=None)),
}
"""The clause that names it, and how an answer is spoilt."""

FAULTS = {
    name: Fault(protocol="v1", model="half_plus_two", clause=clause, spoil=spoil)
    for name, (clause, spoil) in SPOILT.items()
}
