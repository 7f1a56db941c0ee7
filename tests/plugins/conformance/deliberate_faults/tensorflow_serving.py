"""Deliberate faults in an engine of TensorFlow Serving's REST API."""

from tests.plugins.conformance.deliberate_faults.spoiling import (
    change_answers,
    change_each,
    errors_in,
    rename_field,
    replace_at,
    replace_containing,
    replace_field,
    replace_when,
    server_error_for_bad_json,
)
from tests.plugins.conformance.engines import AnswerFaults, faults_of

VERSIONS = "model_version_status"

ANSWER_FAULTS: AnswerFaults = {
    "versions as numbers": ("TFS-001", change_each(VERSIONS, lambda v: v.update(version=int(v["version"])))),
    "all versions returned": ("TFS-002", replace_field(VERSIONS, lambda found: found * 2, "/versions/")),
    "unknown models are 400": ("TFS-003",
        replace_when(lambda r: r.url.path.endswith("/conform-unknown") and r.method == "GET", 400)),
    "signature_def once": ("TFS-004",
        change_answers(lambda a: a["metadata"].update(a["metadata"]["signature_def"]), "/metadata")),
    "results": ("TFS-005", rename_field("predictions", "results")),
    "one prediction": ("TFS-006", replace_field("predictions", lambda found: found[:1])),
    "predictions for columns": ("TFS-007", rename_field("outputs", "predictions", ":predict")),
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
    "errors in a field detail": ("TFS-019", errors_in("detail")),
}  # fmt: skip
FAULTS = faults_of("tensorflow-serving", "half_plus_two", ANSWER_FAULTS)
