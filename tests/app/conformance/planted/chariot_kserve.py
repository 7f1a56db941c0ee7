"""Faults in an engine of chariot-v2-kserve."""

import json
import math
from collections.abc import Callable
from typing import Any

import httpx

from app.conformance.pictures import OWN_PICTURES
from tests.app.conformance.engines import Fault, Rewrite, Spoil
from tests.app.conformance.planted.items import faults, images_in
from tests.app.conformance.planted.spoiling import asking, asking_at, headed, where

Output = dict[str, Any]


def outputs(change: Callable[[list[Output]], object]) -> Spoil:
    """A fault in the outputs of an answer."""

    def spoil(_: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        if status == 200 and "outputs" in answer:
            change(answer["outputs"])
        return status, answer

    return spoil


def each_output(change: Callable[[Output], object]) -> Spoil:
    def change_all(found: list[Output]) -> None:
        for output in found:
            change(output)

    return outputs(change_all)


def echoed(chosen: Callable[[str], bool], change: Callable[[str], str]) -> Spoil:
    """Metadata that comes back changed, where `chosen`."""

    def spoil(output: Output) -> None:
        text = output.get("parameters", {}).get("metadata")
        if isinstance(text, str) and chosen(text):
            output["parameters"]["metadata"] = change(text)

    return each_output(spoil)


def wrong_id(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    if "outputs" in answer and "x-request-id" in request.headers:
        answer["id"] = request.headers["x-request-id"]
    return status, answer


def base_id(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    if "outputs" in answer and "chariot-inference-base-id" in request.headers:
        answer["id"] = request.headers["chariot-inference-base-id"]
    return status, answer


def no_id(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    if "outputs" in answer and b'"id"' in request.content:
        answer["id"] = "mine"
    return status, answer


def one_id(_: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    if "outputs" in answer and len(answer["id"]) == 36:
        answer["id"] = "always"
    return status, answer


def written_again(output: Output) -> None:
    text = output.get("parameters", {}).get("metadata")
    try:
        output["parameters"]["metadata"] = json.dumps(json.loads(text), ensure_ascii=False)
    except (KeyError, TypeError, ValueError):
        return


def only_json(output: Output) -> None:
    try:
        json.loads(output.get("parameters", {}).get("metadata", "0"))
    except ValueError:
        del output["parameters"]


def shuffled_metadata(found: list[Output]) -> None:
    texts = [output.get("parameters") for output in found]
    for output, text in zip(found, reversed(texts), strict=True):
        output["parameters"] = text


def swapped_data(found: list[Output]) -> None:
    data = [output["data"] for output in found]
    for output, other in zip(found, reversed(data), strict=True):
        output["data"] = other


def not_a_number(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    """NaN where one of the pictures is asked about alone."""
    if "outputs" in answer and list(images_in(request)) == [OWN_PICTURES[1].data]:
        answer["model_version"] = math.nan
    return status, answer


def headless(request: httpx.Request) -> httpx.Request:
    headers = {name: value for name, value in request.headers.items() if name != "x-request-id"}
    return httpx.Request(request.method, request.url, headers=headers, content=request.content)


def detail(_: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    return (status, {"message": "no"}) if status == 400 else (status, answer)


def upset() -> Spoil:
    """An engine that finds nothing in pictures that it knows, after it was sent what is not base64."""
    seen: list[bytes] = []

    def spoil(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        if "outputs" in answer and request.content in seen and any(b"%%%" in each for each in seen):
            for output in answer["outputs"]:
                output["data"] = [[]]
        seen.append(request.content)
        return status, answer

    return spoil


SPOILT: dict[str, tuple[str, str, Spoil]] = {
    "always 500": ("detector", "CV2K-001", asking_at("/infer", 500)),
    "no slash at the end": ("detector", "CV2K-002", asking_at("/infer/")),
    "no path of a model": ("detector", "CV2K-003", asking_at("/m-conform/")),
    "no /ready": ("detector", "CV2K-005", asking_at("/ready", method="GET")),
    "JSON as text": ("detector", "CV2K-006", headed("/infer", content_type="text/plain")),
    "no charset": ("detector", "CV2K-007", where(lambda r: "charset" in r.headers.get("content-type", ""), 415)),
    "NaN": ("detector", "CV2K-008", not_a_number),
    "outputs by name": (
        "detector",
        "CV2K-009",
        lambda _, s, a: (s, {**a, "outputs": {"0": a["outputs"][0]}} if a.get("outputs") else a),
    ),
    "one output for all": ("detector", "CV2K-010", outputs(lambda found: found.__delitem__(slice(1, None)))),
    "no name": ("detector", "CV2K-011", each_output(lambda o: o.update(name="output"))),
    "wrong order of outputs": ("detector", "CV2K-011", outputs(lambda found: found.reverse())),
    "answers of other images": ("detector", "CV2K-012", outputs(swapped_data)),
    "shape of text": ("detector", "CV2K-013", each_output(lambda o: o.update(shape="1"))),
    "datatype": ("classifier", "CV2K-014", each_output(lambda o: o.update(datatype="JSON"))),
    "items not nested": ("detector", "CV2K-015", each_output(lambda o: o.update(data=o["data"][0]))),
    "items as JSON text": ("classifier", "CV2K-015", each_output(lambda o: o.update(data=[json.dumps(o["data"][0])]))),
    "nothing found is nothing": (
        "detector",
        "CV2K-016",
        each_output(lambda o: o.update(data=[]) if o["data"] == [[]] else None),
    ),
    "a version of numbers": (
        "detector",
        "CV2K-017",
        lambda _, status, answer: (status, {**answer, "model_version": 1} if "outputs" in answer else answer),
    ),
    "parameters that are a list": ("vlm", "CV2K-018", each_output(lambda o: o.setdefault("parameters", []))),
    "no id": ("detector", "CV2K-020", no_id),
    "header before body": ("detector", "CV2K-021", wrong_id),
    "base id before body": ("detector", "CV2K-023", base_id),
    "one id for all": ("segmenter", "CV2K-024", one_id),
    "no metadata echo": ("detector", "CV2K-030", each_output(lambda o: o.pop("parameters", None))),
    "places rounded": ("detector", "CV2K-031", echoed(lambda t: "51.5" in t, lambda t: t.replace("51.5", "52"))),
    "metadata written again": ("detector", "CV2K-033", each_output(written_again)),
    "ASCII": ("detector", "CV2K-034", echoed(lambda t: "東" in t, lambda t: t.encode("ascii", "replace").decode())),
    "metadata that is JSON only": ("detector", "CV2K-035", each_output(only_json)),
    "metadata of another image": ("detector", "CV2K-036", outputs(shuffled_metadata)),
    "metadata from nowhere": (
        "detector",
        "CV2K-037",
        each_output(lambda o: o.setdefault("parameters", {}).setdefault("metadata", "{}")),
    ),
    "metadata cut": ("detector", "CV2K-038", echoed(lambda t: len(t) > 4096, lambda t: t[:4096])),
    "unknown parameters refused": ("detector", "CV2K-040", asking(b"conform_nested")),
    "known actions refused": ("detector", "CV2K-041", asking(b'"detect"')),
    "unknown actions refused": ("detector", "CV2K-042", asking(b'"action":"conform_unknown"')),
    "parameters of all refused": ("detector", "CV2K-043", asking(b'"conform_unknown":"x"')),
    "unknown fields refused": ("detector", "CV2K-044", asking(b'"conform_unknown":1')),
    "unknown headers refused": ("detector", "CV2K-045", where(lambda r: "x-conform-unknown" in r.headers, 400)),
    "shape of pixels refused": ("detector", "CV2K-046", asking(b'"shape":[480,640,3]')),
    "shape -1 refused": ("detector", "CV2K-047", asking(b'"shape":[-1]')),
    "not base64, 500": ("detector", "CV2K-050", asking(b"%%%", 500)),
    "no image, 500": ("detector", "CV2K-051", asking(b"bm90IGFuIGltYWdl", 500)),
    "half an image, 500": ("detector", "CV2K-052", where(lambda r: 0 < len(b"".join(images_in(r))) < 99 and
                                                         b"bm90" not in r.content, 500)),
    "no inputs, 200": ("detector", "CV2K-053", asking(b'"inputs":[]', 200)),
    "inputs absent, 500": ("detector", "CV2K-054", where(lambda r: r.content == b"{}", 500)),
    "not JSON, 500": ("detector", "CV2K-055", where(lambda r: r.content.endswith(b": ["), 500)),
    "a list, 500": ("detector", "CV2K-056", where(lambda r: r.content == b"[1]", 500)),
    "nothing sent, 500": ("detector", "CV2K-057", where(lambda r: r.method == "POST" and not r.content, 500)),
    "a threshold of text, 500": ("detector", "CV2K-058", asking(b'"high"', 500)),
    "refusals without a reason": ("detector", "CV2K-059", detail),
    "upset by refusals": ("detector", "CV2K-060", upset()),
}  # fmt: skip
"""The model that an answer is spoilt of, the clause that names it, and how."""

TAKEN: dict[str, tuple[str, str, Rewrite]] = {"a header passed over": ("detector", "CV2K-022", headless)}

_NAME = "chariot-v2-kserve"

FAULTS: dict[str, Fault] = {
    **faults(_NAME, "CV2K"),
    **{name: Fault(protocol=_NAME, model=m, clause=c, spoil=spoil) for name, (m, c, spoil) in SPOILT.items()},
    **{name: Fault(protocol=_NAME, model=m, clause=c, rewrite=taken) for name, (m, c, taken) in TAKEN.items()},
    "no health": Fault(
        protocol=_NAME, model="detector", clause="CV2K-004", also=("CV2K-005",), spoil=asking_at("/", method="GET")
    ),
    "a list is wrapped": Fault(
        protocol=_NAME,
        model="detector",
        clause="CV2K-032",
        also=("CV2K-036",),
        spoil=echoed(lambda t: t[:1] == "[", lambda t: f'{{"extended": {t}}}'),
    ),
}
