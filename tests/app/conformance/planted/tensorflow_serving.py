"""Faults in an engine of TensorFlow Serving's REST API."""

from typing import Any

from tests.app.conformance.engines import Fault, Spoil
from tests.app.conformance.planted.kserve_v1 import first_only
from tests.app.conformance.planted.spoiling import (
    answers,
    asking,
    asking_at,
    blaming_itself,
    detailed,
    where,
)


def numbered(answer: Any) -> None:
    for each in answer.get("model_version_status", ()):
        each["version"] = int(each["version"])


def all_versions(answer: Any) -> None:
    answer["model_version_status"] *= 2


def renamed(old: str, new: str) -> Spoil:
    return answers(lambda a: a.update({new: a.pop(old)}) if old in a else None, ":predict")


SPOILT: dict[str, tuple[str, str, Spoil]] = {
    "version of number": ("half_plus_two", "TFS-001", answers(numbered)),
    "every version": ("half_plus_two", "TFS-002", answers(lambda a: all_versions(a) if "model_version_status" in a
                                                         else None, "/versions/")),
    "unknown models are 400": ("half_plus_two", "TFS-003", where(
        lambda r: r.url.path.endswith("/conform-unknown") and r.method == "GET", 400)),
    "signature_def once": (
        "half_plus_two",
        "TFS-004",
        answers(lambda a: a["metadata"].update(a["metadata"]["signature_def"]), "/metadata"),
    ),
    "results": ("half_plus_two", "TFS-005", renamed("predictions", "results")),
    "one prediction": ("half_plus_two", "TFS-006", answers(lambda a: first_only(a) if "predictions" in a else None,
                                                           ":predict")),
    "predictions for columns": ("half_plus_two", "TFS-007", renamed("outputs", "predictions")),
    "a column lost": ("detector", "TFS-008", answers(lambda a: a["outputs"].popitem() if "outputs" in a else 0)),
    "no path of a version": ("half_plus_two", "TFS-009", where(
        lambda r: "/versions/" in r.url.path and r.method == "POST", 404)),
    "both are taken": ("half_plus_two", "TFS-010", where(
        lambda r: b'"inputs"' in r.content and b'"instances"' in r.content, 200, {"predictions": []})),
    "neither, 500": ("half_plus_two", "TFS-011", asking(b'"conform"', 500)),
    "no instances, 200": ("half_plus_two", "TFS-012", asking(b'"instances":[]', 200, {"predictions": []})),
    "bad JSON, 500": ("half_plus_two", "TFS-013", blaming_itself),
    "malformed paths are 404": ("half_plus_two", "TFS-014", asking_at("/v1/conform", 404)),
    "to predict with an unknown model is 400": ("half_plus_two", "TFS-015", asking_at("/conform-unknown:", 400)),
    "any signature": ("half_plus_two", "TFS-016", asking(b"signature_name", 200, {"predictions": []})),
    "unknown labels are 404": ("half_plus_two", "TFS-017", asking_at("/labels/", 404)),
    "not base64, 500": ("greeter", "TFS-018", asking(b"%%%", 500)),
    "refusals with detail": ("half_plus_two", "TFS-019", detailed),
}  # fmt: skip
"""The model that an answer is spoilt of, the clause that names it, and how."""

FAULTS = {
    name: Fault(protocol="tensorflow-serving", model=model, clause=clause, spoil=spoil)
    for name, (model, clause, spoil) in SPOILT.items()
}
