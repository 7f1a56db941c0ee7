"""Deliberate faults in an engine of chariot-v2-kserve."""

import base64
import json
import math
from collections.abc import Callable
from typing import Any

import httpx

from app.plugins.conformance.sample_images import SAMPLE_IMAGES
from tests.plugins.conformance.deliberate_faults.spoiling import (
    replace_at,
    replace_containing,
    replace_when,
    set_headers,
)
from tests.plugins.conformance.engines import AnswerFault, AnswerFaults, Fault, answer_faults

Output = dict[str, Any]


def change_outputs(change: Callable[[list[Output]], object]) -> AnswerFault:
    def fault(_: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        if status == 200 and "outputs" in answer:
            change(answer["outputs"])
        return status, answer

    return fault


def change_each_output(change: Callable[[Output], object]) -> AnswerFault:
    def change_all(outputs: list[Output]) -> None:
        for output in outputs:
            change(output)

    return change_outputs(change_all)


def change_metadata(matches: Callable[[str], bool], change: Callable[[str], str]) -> AnswerFault:
    """Change the returned metadata that matches."""

    def fault(output: Output) -> None:
        text = output.get("parameters", {}).get("metadata")
        if isinstance(text, str) and matches(text):
            output["parameters"]["metadata"] = change(text)

    return change_each_output(fault)


def id_from_header(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    if "outputs" in answer and "x-request-id" in request.headers:
        answer["id"] = request.headers["x-request-id"]
    return status, answer


def id_from_base_header(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    if "outputs" in answer and "chariot-inference-base-id" in request.headers:
        answer["id"] = request.headers["chariot-inference-base-id"]
    return status, answer


def ignored_id(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    if "outputs" in answer and b'"id"' in request.content:
        answer["id"] = "mine"
    return status, answer


def constant_id(_: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    if "outputs" in answer and len(answer["id"]) == 36:
        answer["id"] = "always"
    return status, answer


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


def shuffled_metadata(outputs: list[Output]) -> None:
    texts = [output.get("parameters") for output in outputs]
    for output, text in zip(outputs, reversed(texts), strict=True):
        output["parameters"] = text


def swapped_data(outputs: list[Output]) -> None:
    data = [output["data"] for output in outputs]
    for output, other in zip(outputs, reversed(data), strict=True):
        output["data"] = other


def nan_answer(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    """Answer with NaN if one of our images is the only one in a request."""
    if len(answer.get("outputs", ())) == 1 and base64.b64encode(SAMPLE_IMAGES[1].data) in request.content:
        answer["model_version"] = math.nan
    return status, answer


def without_header(request: httpx.Request) -> httpx.Request:
    headers = {name: value for name, value in request.headers.items() if name != "x-request-id"}
    return httpx.Request(request.method, request.url, headers=headers, content=request.content)


def error_without_reason(_: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    return (status, {"message": "no"}) if status == 400 else (status, answer)


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
        lambda _, s, a: (s, {**a, "outputs": {"0": a["outputs"][0]}} if a.get("outputs") else a)),
    "one output for all": ("CV2K-010", change_outputs(lambda found: found.__delitem__(slice(1, None)))),
    "no name": ("CV2K-011", change_each_output(lambda o: o.update(name="output"))),
    "wrong order of outputs": ("CV2K-011", change_outputs(lambda found: found.reverse())),
    "answers of other images": ("CV2K-012", change_outputs(swapped_data)),
    "shape of text": ("CV2K-013", change_each_output(lambda o: o.update(shape="1"))),
    "datatype": ("CV2K-014", change_each_output(lambda o: o.update(datatype="JSON")), "classifier"),
    "items not in a list": ("CV2K-015", change_each_output(lambda o: o.update(data=o["data"][0]))),
    "items as JSON text": ("CV2K-015",
        change_each_output(lambda o: o.update(data=[json.dumps(o["data"][0])])), "classifier"),
    "no list without detections": ("CV2K-016",
        change_each_output(lambda o: o.update(data=[]) if o["data"] == [[]] else None)),
    "a version of numbers": ("CV2K-017",
        lambda _, status, answer: (status, {**answer, "model_version": 1} if "outputs" in answer else answer)),
    "parameters that are a list": ("CV2K-018", change_each_output(lambda o: o.setdefault("parameters", [])), "vlm"),
    "no id": ("CV2K-020", ignored_id),
    "id from header before id from body": ("CV2K-021", id_from_header),
    "base id before id from body": ("CV2K-023", id_from_base_header),
    "one id for all": ("CV2K-024", constant_id, "segmenter"),
    "no metadata echo": ("CV2K-030", change_each_output(lambda o: o.pop("parameters", None))),
    "coordinates rounded": ("CV2K-031", change_metadata(lambda t: "51.5" in t, lambda t: t.replace("51.5", "52"))),
    "metadata serialized again": ("CV2K-033", change_each_output(reserialized_metadata)),
    "metadata in ASCII": ("CV2K-034",
        change_metadata(lambda t: "東" in t, lambda t: t.encode("ascii", "replace").decode())),
    "metadata that is JSON only": ("CV2K-035", change_each_output(json_metadata_only)),
    "metadata of another image": ("CV2K-036", change_outputs(shuffled_metadata)),
    "metadata invented": ("CV2K-037",
        change_each_output(lambda o: o.setdefault("parameters", {}).setdefault("metadata", "{}"))),
    "metadata cut": ("CV2K-038", change_metadata(lambda t: len(t) > 4096, lambda t: t[:4096])),
    "unknown parameters refused": ("CV2K-040", replace_containing(b"conform_nested")),
    "known actions refused": ("CV2K-041", replace_containing(b'"detect"')),
    "unknown actions refused": ("CV2K-042", replace_containing(b'"action":"conform_unknown"')),
    "parameters of all refused": ("CV2K-043", replace_containing(b'"conform_unknown":"x"')),
    "unknown fields refused": ("CV2K-044", replace_containing(b'"conform_unknown":1')),
    "unknown headers refused": ("CV2K-045", replace_when(lambda r: "x-conform-unknown" in r.headers, 400)),
    "shape of pixels refused": ("CV2K-046", replace_containing(b'"shape":[480,640,3]')),
    "shape -1 refused": ("CV2K-047", replace_containing(b'"shape":[-1]')),
    "not base64, 500": ("CV2K-050", replace_containing(b"%%%", 500)),
    "no image, 500": ("CV2K-051", replace_containing(b"bm90IGFuIGltYWdl", 500)),
    "half an image, 500": ("CV2K-052", replace_containing(base64.b64encode(SAMPLE_IMAGES[0].data[:45]) + b'"', 500)),
    "no inputs, 200": ("CV2K-053", replace_containing(b'"inputs":[]', 200)),
    "inputs absent, 500": ("CV2K-054", replace_when(lambda r: r.content == b"{}", 500)),
    "not JSON, 500": ("CV2K-055", replace_when(lambda r: r.content.endswith(b": ["), 500)),
    "a list, 500": ("CV2K-056", replace_when(lambda r: r.content == b"[1]", 500)),
    "no body, 500": ("CV2K-057", replace_when(lambda r: r.method == "POST" and not r.content, 500)),
    "a threshold of text, 500": ("CV2K-058", replace_containing(b'"high"', 500)),
    "errors without a reason": ("CV2K-059", error_without_reason),
    "broken after an error": ("CV2K-060", broken_after_error()),
}  # fmt: skip
_NAME = "chariot-v2-kserve"

FAULTS: dict[str, Fault] = {
    **answer_faults(_NAME, "detector", ANSWER_FAULTS),
    "header ignored": Fault(protocol=_NAME, model="detector", check="CV2K-022", change_request=without_header),
    "no health": Fault(
        protocol=_NAME,
        model="detector",
        check="CV2K-004",
        also_fails=("CV2K-005",),
        change_answer=replace_at("/", method="GET"),
    ),
    "a list is wrapped": Fault(
        protocol=_NAME,
        model="detector",
        check="CV2K-032",
        also_fails=("CV2K-036",),
        change_answer=change_metadata(lambda t: t[:1] == "[", lambda t: f'{{"extended": {t}}}'),
    ),
}
