"""Every fault that is planted in an engine of chariot-v2-kserve is named by its clause, and nothing else is."""

import base64
import json
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import cv2
import httpx
import numpy as np
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from tests.app.conformance.engines import Spoil, engine, failed, held, held_spoilt

MODELS = ("classifier", "detector", "oriented-detector", "segmenter", "vlm")
Engines = dict[str, TestClient[Litestar]]
Item = dict[str, Any]


@pytest.fixture(scope="module", params=MODELS)
def each_engine(request: pytest.FixtureRequest) -> Iterator[TestClient[Litestar]]:
    with engine(request.param) as client:
        yield client


@pytest.fixture(scope="module")
def engines() -> Iterator[Engines]:
    with ExitStack() as stack:
        yield {model: stack.enter_context(engine(model)) for model in MODELS}


def outputs(change: Callable[[list[Item]], object]) -> Spoil:
    """A fault in the outputs of an answer."""

    def spoil(_: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        if status == 200 and "outputs" in answer:
            change(answer["outputs"])
        return status, answer

    return spoil


def each_output(change: Callable[[Item], object]) -> Spoil:
    def change_all(found: list[Item]) -> None:
        for output in found:
            change(output)

    return outputs(change_all)


def items(change: Callable[[Item], object]) -> Spoil:
    """A fault in every item."""

    def change_all(output: Item) -> None:
        for item in output["data"][0]:
            change(item)

    return each_output(change_all)


def sized(change: Callable[[Item, int, int], object]) -> Spoil:
    """A fault in every item that has to do with the size of the image: item, width, height."""

    def spoil(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        if status == 200 and "outputs" in answer:
            asked = json.loads(request.content)["inputs"]
            for given, output in zip(asked, answer["outputs"], strict=True):
                encoded = np.frombuffer(base64.b64decode(given["data"][0]), np.uint8)
                height, width = np.asarray(cv2.imdecode(encoded, cv2.IMREAD_COLOR)).shape[:2]
                for item in output["data"][0]:
                    change(item, width, height)
        return status, answer

    return spoil


def scaled(item: Item, across: float, down: float, names: str = "xmin ymin xmax ymax") -> None:
    for index, name in enumerate(names.split()):
        item[name] *= down if index % 2 else across


def mirrored(item: Item) -> None:
    item["r"] = -item["r"]


def points(change: Callable[[Item], object]) -> Spoil:
    def change_all(item: Item) -> None:
        for contour in item["contour"]:
            for point in contour:
                change(point)

    return items(change_all)


def refusals(status: int) -> Spoil:
    """Every refusal with another status."""
    return lambda _, right, answer: (status if 400 <= right < 500 and "error" in answer else right, answer)


def wrong_id(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    if "outputs" in answer and "x-request-id" in request.headers:
        answer["id"] = request.headers["x-request-id"]
    return status, answer


def base_id(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    if "outputs" in answer and "chariot-inference-base-id" in request.headers:
        answer["id"] = request.headers["chariot-inference-base-id"]
    return status, answer


def one_id(_: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    if "outputs" in answer and len(answer["id"]) == 36:
        answer["id"] = "always"
    return status, answer


def written_again(output: Item) -> None:
    text = output.get("parameters", {}).get("metadata")
    try:
        output["parameters"]["metadata"] = json.dumps(json.loads(text), ensure_ascii=False)
    except (KeyError, TypeError, ValueError):
        return


def only_json(output: Item) -> None:
    try:
        json.loads(output.get("parameters", {}).get("metadata", "0"))
    except ValueError:
        del output["parameters"]


def shuffled_metadata(found: list[Item]) -> None:
    texts = [output.get("parameters") for output in found]
    for output, text in zip(found, reversed(texts), strict=True):
        output["parameters"] = text


def swapped_data(found: list[Item]) -> None:
    data = [output["data"] for output in found]
    for output, other in zip(found, reversed(data), strict=True):
        output["data"] = other


def parallel_lists(output: Item) -> None:
    """What the older public engine answers."""
    found = output["data"][0]
    output["data"] = [{"detection_scores": [item["score"] for item in found]}]


def unslashed(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    return (404, {"error": "Not Found"}) if request.url.path.endswith("/infer/") else (status, answer)


def unready(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    return (404, {"error": "Not Found"}) if request.method == "GET" else (status, answer)


def asking(word: bytes, status: int = 400) -> Spoil:
    """An engine that refuses every request with `word` in it."""
    return lambda request, right, answer: (status, {"error": "no"}) if word in request.content else (right, answer)


def headed(word: str) -> Spoil:
    """An engine that refuses every request with the header `word`."""
    return lambda request, right, answer: (400, {"error": "no"}) if word in request.headers else (right, answer)


def detail(_: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    return (status, {"message": "no"}) if status == 400 else (status, answer)


def ignoring_threshold(right: TestClient[Litestar]) -> Spoil:
    """Answers with what there is above the default threshold, whatever was asked for."""

    def spoil(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        if status != 200 or b"score_threshold" not in request.content:
            return status, answer
        body = json.loads(request.content)
        for given in body["inputs"]:
            given["parameters"].pop("score_threshold", None)
        return status, right.post("/infer", json=body).json()

    return spoil


FAULTS: dict[str, tuple[str, str, Spoil]] = {
    "no slash at the end": ("detector", "CV2K-002", unslashed),
    "no name": ("detector", "CV2K-011", each_output(lambda o: o.update(name="output"))),
    "wrong order of outputs": ("detector", "CV2K-011", outputs(lambda found: found.reverse())),
    "answers of other images": ("detector", "CV2K-012", outputs(swapped_data)),
    "one output for all": ("detector", "CV2K-010", outputs(lambda found: found.__delitem__(slice(1, None)))),
    "shape of text": ("detector", "CV2K-013", each_output(lambda o: o.update(shape="1"))),
    "datatype": ("classifier", "CV2K-014", each_output(lambda o: o.update(datatype="JSON"))),
    "items not nested": ("detector", "CV2K-015", each_output(lambda o: o.update(data=o["data"][0]))),
    "items as JSON text": ("classifier", "CV2K-015", each_output(lambda o: o.update(data=[json.dumps(o["data"][0])]))),
    "nothing found is nothing": (
        "detector",
        "CV2K-016",
        each_output(lambda o: o.update(data=[]) if o["data"] == [[]] else None),
    ),
    "no version": (
        "detector",
        "CV2K-017",
        lambda _, status, answer: (status, {**answer, "model_version": 1} if "outputs" in answer else answer),
    ),
    "parameters that are a list": ("vlm", "CV2K-018", each_output(lambda o: o.setdefault("parameters", []))),
    "header before body": ("detector", "CV2K-021", wrong_id),
    "base id before body": ("detector", "CV2K-023", base_id),
    "one id for all": ("segmenter", "CV2K-024", one_id),
    "no metadata echo": ("detector", "CV2K-030", each_output(lambda o: o.pop("parameters", None))),
    "metadata written again": ("detector", "CV2K-033", each_output(written_again)),
    "metadata that is JSON only": ("detector", "CV2K-035", each_output(only_json)),
    "metadata of another image": ("detector", "CV2K-036", outputs(shuffled_metadata)),
    "metadata from nowhere": (
        "detector",
        "CV2K-037",
        each_output(lambda o: o.setdefault("parameters", {}).setdefault("metadata", "{}")),
    ),
    "missing corner": ("detector", "CV2K-I01", items(lambda item: item.pop("ymax"))),
    "label of numbers": ("detector", "CV2K-I02", items(lambda item: item.update(label=3))),
    "score of text": ("detector", "CV2K-I03", items(lambda item: item.update(score=str(item["score"])))),
    "score of text, classes": ("classifier", "CV2K-I03", items(lambda item: item.update(score=str(item["score"])))),
    "score in per cent": ("detector", "CV2K-I04", items(lambda item: item.update(score=item["score"] * 100))),
    "worst first": ("detector", "CV2K-I05", each_output(lambda o: o["data"][0].reverse())),
    "answer that is a list": ("vlm", "CV2K-I08", items(lambda item: item.update(answer=[item["answer"]]))),
    "prompts not given back": ("vlm", "CV2K-I09", items(lambda item: item.update(prompt="?"))),
    "corners of text": ("detector", "CV2K-P01", items(lambda item: item.update(xmin=str(item["xmin"])))),
    "normalised boxes": ("detector", "CV2K-P02", sized(lambda item, w, h: scaled(item, 1 / w, 1 / h))),
    "boxes of the model's own frame": (
        "detector",
        "CV2K-P03",
        sized(lambda item, w, h: scaled(item, 320 / w, 320 / h)),
    ),
    "left and right": (
        "detector",
        "CV2K-P04",
        items(lambda item: item.update(xmin=item["xmax"], xmax=item["xmin"])),
    ),
    "boxes outside": (
        "detector",
        "CV2K-P05",
        sized(lambda item, w, _: item.update(xmin=item["xmin"] + w, xmax=item["xmax"] + w)),
    ),
    "turned boxes of text": ("oriented-detector", "CV2K-P06", items(lambda item: item.update(r=str(item["r"])))),
    "turned boxes in pixels": (
        "oriented-detector",
        "CV2K-P07",
        sized(lambda item, w, h: scaled(item, w, h, "cx cy w h")),
    ),
    "degrees": ("oriented-detector", "CV2K-P08", items(lambda item: item.update(r=math.degrees(item["r"])))),
    "negative sides": ("oriented-detector", "CV2K-P10", items(lambda item: item.update(w=-item["w"]))),
    "flat contour": ("segmenter", "CV2K-P11", items(lambda item: item.update(contour=item["contour"][0]))),
    "points of lists": (
        "segmenter",
        "CV2K-P11",
        items(lambda item: item.update(contour=[[[p["x"], p["y"]] for p in c] for c in item["contour"]])),
    ),
    "normalised contours": (
        "segmenter",
        "CV2K-P12",
        sized(lambda item, w, h: [scaled(p, 1 / w, 1 / h, "x y") for c in item["contour"] for p in c]),
    ),
    "contours outside": ("segmenter", "CV2K-P14", points(lambda point: point.update(x=point["x"] - 700))),
    "unknown parameters refused": ("detector", "CV2K-040", asking(b"conform_nested")),
    "known actions refused": ("detector", "CV2K-041", asking(b'"detect"')),
    "unknown headers refused": ("detector", "CV2K-045", headed("x-conform-unknown")),
    "shape of pixels refused": ("detector", "CV2K-046", asking(b'"shape":[480,640,3]')),
    "shape -1 refused": ("detector", "CV2K-047", asking(b'"shape":[-1]')),
    "not base64, 500": ("detector", "CV2K-050", asking(b"%%%", 500)),
    "no image, 500": ("detector", "CV2K-051", asking(b"bm90IGFuIGltYWdl", 500)),
    "no inputs, 200": ("detector", "CV2K-053", asking(b'"inputs":[]', 200)),
    "refusals without a reason": ("detector", "CV2K-059", detail),
}
"""What is broken: the model it is broken with, the clause that names it, and how."""


def test_ours_conforms(each_engine: TestClient[Litestar]) -> None:
    assert failed(held(each_engine)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named_and_nothing_else(engines: Engines, fault: str) -> None:
    model, clause, spoil = FAULTS[fault]
    assert list(failed(held_spoilt(engines[model], spoil))) == [clause]


@pytest.mark.slow
def test_a_threshold_that_is_passed_over_is_named_and_nothing_else(engines: Engines) -> None:
    right = engines["detector"]
    assert list(failed(held_spoilt(right, ignoring_threshold(right)))) == ["CV2K-I06"]
