"""Each protocol as a client: the requests and answers of the golden exchanges."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app.evaluation.asking import HTTP_PROTOCOLS, HttpAsker
from app.evaluation.collecting import AskingError
from app.evaluation.dataset import Item
from tests.support.evaluations import item
from tests.support.server_process import ROOT

WIRE = ROOT / "fixtures" / "wire"
FOUND = [{"label": "red", "score": 0.9, "xmin": 10.0, "ymin": 8.0, "xmax": 30.0, "ymax": 40.0}]


def golden(protocol: str, case: str) -> Any:
    return json.loads((WIRE / protocol / case / "response.json").read_bytes())


def asked(
    protocol: str,
    answer: Any,
    *,
    status: int = 200,
    model: str = "Detector",
    about: Item | None = None,
    **parameters: object,
) -> tuple[Any, httpx.Request]:
    """What is read out of an answer, and the request that it was to."""
    seen: list[httpx.Request] = []

    def answering(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return httpx.Response(status, content=content)

    with httpx.Client(transport=httpx.MockTransport(answering), timeout=60) as client:
        ask = HttpAsker(client, "http://engine.local/base/", protocol, model, parameters)
        return ask(about or item(), b"picture"), seen[0]


@pytest.mark.parametrize(
    ("protocol", "folder", "case", "path"),
    [
        ("chariot-v2-kserve", "chariot-v2-kserve", "detection", "/base/v2/models/m-detector/infer"),
        ("chariot-v2", "chariot-v2", "bare-image", "/base/v2/models/m-detector/infer"),
        ("v1", "kserve-v1", "detection-b64", "/base/v1/models/Detector:predict"),
        ("tensorflow-serving", "tensorflow-serving", "detection-row", "/base/v1/models/Detector:predict"),
    ],
)
def test_golden_answers_are_read(protocol: str, folder: str, case: str, path: str) -> None:
    records, request = asked(protocol, golden(folder, case))
    assert records[0] == FOUND[0]
    assert request.url.path == path


def test_answers_in_several_forms() -> None:
    text = json.dumps(FOUND)
    for data in ([text], [FOUND], FOUND):
        assert asked("v2", {"outputs": [{"data": data}]})[0] == FOUND
    assert asked("chariot-v2-kserve", {"outputs": [{"data": [[]]}]})[0] == []
    assert asked("grps", {"gmap": {"s_s": {"image": text}}})[0] == FOUND


@pytest.mark.parametrize(
    ("case", "fields"),
    [
        ("classification-predict", {"label", "score"}),
        ("image-text-to-text", {"prompt", "answer"}),
    ],
)
def test_tensors_become_records(case: str, fields: set[str]) -> None:
    records, _ = asked("tensorflow-serving", golden("tensorflow-serving", case))
    assert set(records[0]) == fields


def test_contours_travel_as_text() -> None:
    contour = [[{"x": 1, "y": 2}]]
    tensors = {"num_detections": 1, "labels": ["a"], "scores": [0.5], "contours": [json.dumps(contour)]}
    records, _ = asked("tensorflow-serving", {"predictions": [tensors]})
    assert records == [{"label": "a", "score": 0.5, "contour": contour}]


def test_padding_is_left_out_of_tensors() -> None:
    tensors = {
        "num_detections": 1,
        "labels": ["a", ""],
        "scores": [0.5, 0],
        "boxes": [[0.1, 0.2, 0.3, 0.4, 1], [0] * 5],
    }
    records, _ = asked("tensorflow-serving", {"predictions": [tensors]})
    assert records == [{"label": "a", "score": 0.5, "cx": 0.1, "cy": 0.2, "w": 0.3, "h": 0.4, "r": 1}]


def test_parameters_and_questions_travel_where_the_protocol_has_them() -> None:
    about = item(question="What?", answers=["x"])
    places: dict[str, Callable[[Any], Any]] = {
        "chariot-v2-kserve": lambda body: body["inputs"][0]["parameters"],
        "chariot-v2": lambda body: body["parameters"],
        "v2": lambda body: body["inputs"][0]["parameters"],
        "v1": lambda body: body["instances"][0]["parameters"],
        "grps": lambda body: json.loads(body["gmap"]["s_s"]["image.parameters"]),
    }
    for protocol, place in places.items():
        with pytest.raises(AskingError):
            asked(protocol, {})
        answers = {"outputs": [{"data": FOUND}], "output": FOUND, "predictions": [FOUND]}
        answers["gmap"] = {"s_s": {"image": json.dumps(FOUND)}}  # pyright: ignore[reportArgumentType]
        _, request = asked(protocol, answers, about=about, top_k=3)
        assert place(json.loads(request.content)) == {"top_k": 3, "prompts": ["What?"]}
    _, request = asked("tensorflow-serving", {"predictions": [{"labels": [], "scores": []}]}, about=about, top_k=3)
    assert json.loads(request.content)["instances"][0] == {"image": {"b64": "cGljdHVyZQ=="}, "prompts": ["What?"]}


@pytest.mark.parametrize("protocol", HTTP_PROTOCOLS)
@pytest.mark.parametrize(
    "answer", [b"", b"hello", b"null", b"[]", b"{}", b"9" * 400, b'{"outputs":[{"data":[[7]]}]}', b"[" * 9000, b"\xff"]
)
def test_answers_without_records_are_one_failure(protocol: str, answer: bytes) -> None:
    with pytest.raises(AskingError, match="The answer has no records"):
        asked(protocol, answer)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": "no such model"}, "HTTP 404: no such model"),
        ({"detail": "no such model"}, "HTTP 404: no such model"),
        ({"status": {"code": 404, "msg": "no such model"}}, "HTTP 404: no such model"),
        (b"<html>", "HTTP 404: <html>"),
        (b"x" * 5000, r"HTTP 404: x{300} \.\.\."),
    ],
)
def test_refusals_are_quoted(body: Any, said: str) -> None:
    with pytest.raises(AskingError, match=said):
        asked("v2", body, status=404)


def test_a_server_that_is_busy_is_asked_again() -> None:
    answers = [httpx.Response(429, json={"error": "busy"}), httpx.Response(200, json={"output": FOUND})]
    with httpx.Client(transport=httpx.MockTransport(lambda _: answers.pop(0)), timeout=60) as client:
        assert HttpAsker(client, "http://engine.local", "chariot-v2", "", {})(item(), b"x") == FOUND
    assert answers == []


def test_a_server_that_is_away_is_one_failure() -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("")

    with (
        httpx.Client(transport=httpx.MockTransport(refuse), timeout=60) as client,
        pytest.raises(AskingError, match="infer: ReadTimeout"),
    ):
        HttpAsker(client, "http://engine.local", "chariot-v2", "", {})(item(), b"x")
