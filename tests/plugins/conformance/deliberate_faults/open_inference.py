"""Deliberate faults in an engine of the Open Inference Protocol over REST."""

from functools import partial
from typing import Any

from tests.plugins.conformance.deliberate_faults.spoiling import (
    change_answers,
    change_body,
    change_bytes,
    change_each,
    errors_in,
    replace_at,
    replace_containing,
    replace_field,
    replace_when,
    server_error_for_bad_json,
    set_headers,
)
from tests.plugins.conformance.engines import AnswerFault, AnswerFaults, RequestFaults, faults_of

change_outputs = partial(change_each, "outputs", path="/infer")


def datatype_string(output: Any) -> None:
    if "data" not in output and output["datatype"] == "BYTES":
        output["datatype"] = "STRING"


def numbers_as_text(output: Any) -> None:
    output["data"] = [str(value) for value in output["data"]] if "data" in output else []


def only_first_elements(body: Any) -> None:
    for tensor in body["inputs"]:
        if len(tensor["data"]) == 2:
            tensor.update(shape=[1], data=tensor["data"][:1])


def replace_status(path: str, status: int) -> AnswerFault:
    return replace_when(lambda r: r.url.path.endswith(path), status)


ANSWER_FAULTS: AnswerFaults = {
    "no extensions": ("V2-001", replace_field("extensions", lambda _: None)),
    "not live": ("V2-002", replace_status("/health/live", 400)),
    "not ready": ("V2-003", replace_status("/health/ready", 503)),
    "empty health answers": ("V2-004", change_answers(lambda a: a.clear(), "/health/")),
    "a model not ready": ("V2-005", replace_status("/half_plus_two/ready", 503)),
    "no platform": ("V2-006", change_answers(lambda a: a.pop("platform", 0))),
    "datatype STRING": ("V2-S01", change_each("outputs", datatype_string), "detector"),
    "no shape": ("V2-008", change_outputs(lambda o: o.pop("shape"))),
    "JSON as text": ("V2-009", set_headers("/infer", content_type="text/html")),
    "an undeclared output": ("V2-S02", change_outputs(lambda o: o.update(name="other"))),
    "another datatype": ("V2-S03", change_outputs(lambda o: o.update(datatype="FP64"))),
    "another rank": ("V2-S04", change_outputs(lambda o: o.update(shape=[]))),
    "too few elements": ("V2-013", change_outputs(lambda o: o["data"].pop() if "data" in o else 0)),
    "numbers as text": ("V2-014", change_outputs(numbers_as_text)),
    "no id": ("V2-S05", change_answers(lambda a: a.pop("id", 0), "/infer")),
    "another model": ("V2-S06", change_answers(lambda a: a.update(model_name="x"), "/infer")),
    "an output twice": (
        "V2-S07",
        change_answers(
            lambda a: a.update(outputs=a["outputs"] * 2), matches=lambda request: b'"outputs":[' in request.content
        ),
    ),
    "any output accepted": ("V2-S09", replace_containing(b'"outputs":[{"name":"conform', 200, {"outputs": []})),
    "unknown models are 400": ("V2-019", replace_at("/conform-unknown", 400)),
    "errors in a field detail": ("V2-020", errors_in("detail")),
    "any JSON accepted": ("V2-021", replace_when(lambda r: r.content.endswith(b"["), 200, {"outputs": []})),
    "bad JSON, 500": ("V2-022", server_error_for_bad_json),
    "no inputs, 200": ("V2-023", replace_containing(b'{"id":"conform"}', 200, {"outputs": []})),
    "any datatype accepted": ("V2-S10", replace_containing(b"CONFORM", 200, {"outputs": []})),
    "a wrong shape, 500": ("V2-S11", replace_containing(b'"shape":[2],"data":[0]', 500)),
    "unknown parameters rejected": ("V2-S08", replace_containing(b'"parameters":{"conform-unknown":1}')),
    "no versions": ("V2-027", replace_at("/versions/")),
}
REQUEST_FAULTS: RequestFaults = {"second element dropped": ("V2-015", change_body(only_first_elements))}
FAULTS = {
    **faults_of("v2", "half_plus_two", ANSWER_FAULTS),
    **faults_of("v2", "half_plus_two", REQUEST_FAULTS, "change_request"),
    **faults_of(
        "v2", "half_plus_two", {"a byte lost": ("V2-028", change_bytes(lambda content: content[:-1]))}, raw=True
    ),
}
