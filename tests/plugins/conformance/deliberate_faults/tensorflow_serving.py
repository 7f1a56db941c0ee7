"""Deliberate faults in an engine of TensorFlow Serving's REST API."""

from typing import Any

from tests.plugins.conformance.deliberate_faults.kserve_v1 import first_prediction_only
from tests.plugins.conformance.deliberate_faults.spoiling import (
    change_answers,
    detail_errors,
    replace_at,
    replace_containing,
    replace_when,
    server_error_for_bad_json,
)
from tests.plugins.conformance.engines import AnswerFault, AnswerFaults, answer_faults


def versions_as_numbers(answer: Any) -> None:
    for version in answer.get("model_version_status", ()):
        version["version"] = int(version["version"])


def repeated_versions(answer: Any) -> None:
    answer["model_version_status"] *= 2


def renamed_field(old: str, new: str) -> AnswerFault:
    return change_answers(lambda a: a.update({new: a.pop(old)}) if old in a else None, ":predict")


ANSWER_FAULTS: AnswerFaults = {
    "versions as numbers": ("TFS-001", change_answers(versions_as_numbers)),
    "all versions returned": ("TFS-002",
        change_answers(lambda a: repeated_versions(a) if "model_version_status" in a else None, "/versions/")),
    "unknown models are 400": ("TFS-003",
        replace_when(lambda r: r.url.path.endswith("/conform-unknown") and r.method == "GET", 400)),
    "signature_def once": ("TFS-004",
        change_answers(lambda a: a["metadata"].update(a["metadata"]["signature_def"]), "/metadata")),
    "results": ("TFS-005", renamed_field("predictions", "results")),
    "one prediction": ("TFS-006",
        change_answers(lambda a: first_prediction_only(a) if "predictions" in a else None, ":predict")),
    "predictions for columns": ("TFS-007", renamed_field("outputs", "predictions")),
    "a column lost": ("TFS-008", change_answers(lambda a: a["outputs"].popitem() if "outputs" in a else 0), "detector"),
    "no path of a version": ("TFS-009", replace_when(lambda r: "/versions/" in r.url.path and r.method == "POST", 404)),
    "inputs and instances accepted": ("TFS-010",
        replace_when(lambda r: b'"inputs"' in r.content and b'"instances"' in r.content, 200, {"predictions": []})),
    "neither, 500": ("TFS-011", replace_containing(b'"conform"', 500)),
    "no instances, 200": ("TFS-012", replace_containing(b'"instances":[]', 200, {"predictions": []})),
    "bad JSON, 500": ("TFS-013", server_error_for_bad_json),
    "malformed paths are 404": ("TFS-014", replace_at("/v1/conform", 404)),
    "to predict with an unknown model is 400": ("TFS-015", replace_at("/conform-unknown:", 400)),
    "any signature accepted": ("TFS-016", replace_containing(b"signature_name", 200, {"predictions": []})),
    "unknown labels are 404": ("TFS-017", replace_at("/labels/", 404)),
    "not base64, 500": ("TFS-018", replace_containing(b"%%%", 500), "greeter"),
    "errors in a field detail": ("TFS-019", detail_errors),
}  # fmt: skip
FAULTS = answer_faults("tensorflow-serving", "half_plus_two", ANSWER_FAULTS)
