"""Deliberate faults in an engine of chariot-v2-kserve."""

import base64
import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx

from app.plugins.conformance.sample_images import SAMPLE_IMAGES
from tests.plugins.conformance.deliberate_faults.spoiling import (
    change_each,
    errors_in,
    replace_at,
    replace_containing,
    replace_field,
    replace_when,
    set_headers,
)
from tests.plugins.conformance.engines import AnswerFault, AnswerFaults, RequestFaults, faults_of

Output = dict[str, Any]

change_outputs = partial(change_each, "outputs")


def change_metadata(matches: Callable[[str], bool], change: Callable[[str], str]) -> AnswerFault:
    """Change the returned metadata that matches."""

    def fault(output: Output) -> None:
        text = output.get("parameters", {}).get("metadata")
        if isinstance(text, str) and matches(text):
            output["parameters"]["metadata"] = change(text)

    return change_outputs(fault)


def replace_id(new_id: Callable[[httpx.Request, str], str]) -> AnswerFault:
    """Replace the id of inferences, given the request and the id."""

    def fault(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        return status, {**answer, "id": new_id(request, answer["id"])} if "outputs" in answer else answer

    return fault


def reserialized_metadata(output: Output) -> None:
    text = output.get("parameters", {}).get("metadata")
    try:
        output["parameters"]["metadata"] = json.dumps(json.loads(text), ensure_ascii=False)
    except (KeyError, TypeError, ValueError):
        return


def json_metadata_only(output: Output) -> None:
    try:
        json.loads(output.get("parameters", {}).get("metadata", "0"))
    except ValueError:
        del output["parameters"]


def reverse(field: str) -> AnswerFault:
    """Give each output a field of another one."""
    return replace_field(
        "outputs",
        lambda outputs: [{**one, field: other.get(field)} for one, other in zip(outputs, outputs[::-1], strict=True)],
    )


def nan_answer(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    """Answer with NaN if one of our images is the only one in a request."""
    if len(answer.get("outputs", ())) == 1 and base64.b64encode(SAMPLE_IMAGES[1].data) in request.content:
        answer["model_version"] = math.nan
    return status, answer


def without_header(request: httpx.Request) -> httpx.Request:
    headers = {name: value for name, value in request.headers.items() if name != "x-request-id"}
    return httpx.Request(request.method, request.url, headers=headers, content=request.content)


def broken_after_error() -> AnswerFault:
    """Detect nothing in repeated requests after a request with invalid base64."""
    seen: list[bytes] = []

    def fault(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        if "outputs" in answer and request.content in seen and any(b"%%%" in content for content in seen):
            for output in answer["outputs"]:
                output["data"] = [[]]
        seen.append(request.content)
        return status, answer

    return fault


ANSWER_FAULTS: AnswerFaults = {
    "always 500": ("CV2K-001", replace_at("/infer", 500)),
    "no slash at the end": ("CV2K-002", replace_at("/infer/")),
    "no path of a model": ("CV2K-003", replace_at("/m-conform/")),
    "no /ready": ("CV2K-005", replace_at("/ready", method="GET")),
    "JSON as text": ("CV2K-006", set_headers("/infer", content_type="text/plain")),
    "no charset": ("CV2K-007", replace_when(lambda r: "charset" in r.headers.get("content-type", ""), 415)),
    "NaN": ("CV2K-008", nan_answer),
    "outputs in an object": ("CV2K-009",
        replace_field("outputs", lambda found: {"0": found[0]} if found else found)),
    "one output for all": ("CV2K-010", replace_field("outputs", lambda found: found[:1])),
    "no name": ("CV2K-011", change_outputs(lambda o: o.update(name="output"))),
    "wrong order of outputs": ("CV2K-011", replace_field("outputs", lambda found: found[::-1])),
    "answers of other images": ("CV2K-012", reverse("data")),
    "shape of text": ("CV2K-013", change_outputs(lambda o: o.update(shape="1"))),
    "datatype": ("CV2K-014", change_outputs(lambda o: o.update(datatype="JSON")), "classifier"),
    "items not in a list": ("CV2K-015", change_outputs(lambda o: o.update(data=o["data"][0]))),
    "items as JSON text": ("CV2K-015",
        change_outputs(lambda o: o.update(data=[json.dumps(o["data"][0])])), "classifier"),
    "second image dropped": ("CV2K-019", change_outputs(lambda o: o.update(data=o["data"][:1]))),
    "no list without detections": ("CV2K-016",
        change_outputs(lambda o: o.update(data=[]) if o["data"] == [[]] else None)),
    "a version of numbers": ("CV2K-017",
        lambda _, status, answer: (status, {**answer, "model_version": 1} if "outputs" in answer else answer)),
    "parameters that are a list": ("CV2K-018", change_outputs(lambda o: o.setdefault("parameters", [])), "vlm"),
    "no id": ("CV2K-020", replace_id(lambda r, own: "mine" if b'"id"' in r.content else own)),
    "id from header before id from body": ("CV2K-021", replace_id(lambda r, own: r.headers.get("x-request-id", own))),
    "base id before id from body": ("CV2K-023",
        replace_id(lambda r, own: r.headers.get("chariot-inference-base-id", own))),
    "one id for all": ("CV2K-024", replace_id(lambda _, own: "always" if len(own) == 36 else own), "segmenter"),
    "no metadata echo": ("CV2K-030", change_outputs(lambda o: o.pop("parameters", None))),
    "coordinates rounded": ("CV2K-031", change_metadata(lambda t: "51.5" in t, lambda t: t.replace("51.5", "52"))),
    "metadata serialized again": ("CV2K-033", change_outputs(reserialized_metadata)),
    "metadata in ASCII": ("CV2K-034",
        change_metadata(lambda t: "東" in t, lambda t: t.encode("ascii", "replace").decode())),
    "metadata that is JSON only": ("CV2K-035", change_outputs(json_metadata_only)),
    "metadata of another image": ("CV2K-036", reverse("parameters")),
    "metadata invented": ("CV2K-037",
        change_outputs(lambda o: o.setdefault("parameters", {}).setdefault("metadata", "{}"))),
    "metadata cut": ("CV2K-038", change_metadata(lambda t: len(t) > 4096, lambda t: t[:4096])),
    "unknown parameters rejected": ("CV2K-040", replace_containing(b"conform_nested")),
    "known actions rejected": ("CV2K-041", replace_containing(b'"detect"')),
    "unknown actions rejected": ("CV2K-042", replace_containing(b'"action":"conform_unknown"')),
    "parameters of all rejected": ("CV2K-043", replace_containing(b'"conform_unknown":"x"')),
    "unknown fields rejected": ("CV2K-044", replace_containing(b'"conform_unknown":1')),
    "unknown headers rejected": ("CV2K-045", replace_when(lambda r: "x-conform-unknown" in r.headers, 400)),
    "shape of pixels rejected": ("CV2K-046", replace_containing(b'"shape":[480,640,3]')),
    "shape -1 rejected": ("CV2K-047", replace_containing(b'"shape":[-1]')),
    "not base64, 500": ("CV2K-050", replace_containing(b"%%%", 500)),
    "no image, 500": ("CV2K-051", replace_containing(b"bm90IGFuIGltYWdl", 500)),
    "half an image, 500": ("CV2K-052", replace_containing(base64.b64encode(SAMPLE_IMAGES[0].data[:45]) + b'"', 500)),
    "no inputs, 200": ("CV2K-053", replace_containing(b'"inputs":[]', 200)),
    "inputs absent, 500": ("CV2K-054", replace_when(lambda r: r.content == b"{}", 500)),
    "not JSON, 500": ("CV2K-055", replace_when(lambda r: r.content.endswith(b": ["), 500)),
    "a list, 500": ("CV2K-056", replace_when(lambda r: r.content == b"[1]", 500)),
    "no body, 500": ("CV2K-057", replace_when(lambda r: r.method == "POST" and not r.content, 500)),
    "a threshold of text, 500": ("CV2K-058", replace_containing(b'"high"', 500)),
    "errors without a reason": ("CV2K-059", errors_in("message")),
    "broken after an error": ("CV2K-060", broken_after_error()),
    "no health": ("CV2K-004 CV2K-005", replace_at("/", method="GET")),
    "a list is wrapped": ("CV2K-032 CV2K-036",
        change_metadata(lambda t: t[:1] == "[", lambda t: f'{{"extended": {t}}}')),
}  # fmt: skip
REQUEST_FAULTS: RequestFaults = {"header ignored": ("CV2K-022", without_header)}
FAULTS = {
    **faults_of("chariot-v2-kserve", "detector", ANSWER_FAULTS),
    **faults_of("chariot-v2-kserve", "detector", REQUEST_FAULTS, "change_request"),
}
