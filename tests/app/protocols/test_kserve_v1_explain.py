"""Explanations over V1: beside the predictions, and in the terms of the request."""

import asyncio
import base64
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import httpx
import numpy as np
import pytest
from litestar import Litestar
from litestar.testing import TestClient
from numpy.typing import NDArray

from app.engine.description import ModelDescription
from app.engine.servable import BoundServable, Servable
from app.protocols.kserve_v1.explanations import SaliencyFormat, wire_explanations
from app.settings.model import ModelSettings, ModelSource
from tasks.exchange.error import InferenceError
from tasks.explanation.explanation import Explanation, ExplanationMethod
from tasks.image_classification import Classification, ClassificationInput, ImageClassification, LabelledScore
from tasks.task import TaskType
from tests.support.chariot import PICTURE
from tests.support.pictures import base64_text, encoded, rectangle
from tests.support.served import application, build
from tests.support.stand_ins import LABELS, STAND_INS, classify

Client = TestClient[Litestar]

QUICK = {"samples": 40, "grid": 4}
FOUR = ("classifier", "detector", "oriented", "segmenter")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with TestClient(build((*STAND_INS, "half_plus_two", "greeter"))) as client:
        yield client


def explain(client: Client, model: str, *instances: object, **parameters: object) -> httpx.Response:
    body = {"instances": instances, "parameters": {**QUICK, **parameters}}
    return client.post(f"/v1/models/{model}:explain", json=body)


def explanations(response: httpx.Response) -> list[list[dict[str, Any]]]:
    assert response.status_code == 200, response.text
    return response.json()["explanations"]


def saliency(explanation: dict[str, Any]) -> NDArray[Any]:
    """(height, width) 0..1, from either form."""
    written = explanation["saliency"]
    if "data" in written:
        return np.array(written["data"])
    grey = cv2.imdecode(np.frombuffer(base64.b64decode(written["png"]), np.uint8), cv2.IMREAD_UNCHANGED)
    assert grey is not None
    return grey / 255


@pytest.mark.parametrize("model", FOUR)
def test_predictions_are_those_of_predict(client: Client, model: str) -> None:
    predicted = client.post(f"/v1/models/{model}:predict", json={"instances": [PICTURE, PICTURE]}).json()
    answer = explain(client, model, PICTURE, PICTURE).json()
    assert list(answer) == ["predictions", "explanations"]
    assert answer["predictions"] == predicted["predictions"]
    assert len(answer["explanations"]) == 2
    for found, records in zip(answer["explanations"], answer["predictions"], strict=True):
        assert found
        for each in found:
            assert list(each) == ["label", "score", "index", "saliency", "method", "samples", "seed"]
            record = records[each["index"]]
            assert (each["label"], each["score"]) == (record["label"], pytest.approx(record["score"]))
            assert (each["method"], each["samples"], each["seed"]) == ("rise", 40, 0)
            assert each["saliency"]["shape"] == [48, 64]


@pytest.mark.parametrize("wanted", ["png", "data"])
def test_the_map_has_the_shape_of_the_image_and_lies_where_the_reason_is(client: Client, wanted: str) -> None:
    picture = base64_text(encoded(rectangle(60, 40, (32, 22, 56, 38))))
    ((found,),) = explanations(explain(client, "detector", picture, method="occlusion", format=wanted, grid=6))
    assert set(found["saliency"]) == {"shape", wanted}
    heat = saliency(found)
    assert heat.shape == (40, 60)
    assert 0 <= heat.min() <= heat.max() <= 1
    assert heat[20:, 30:].mean() > 2 * heat[:20, :30].mean()


def test_both_forms_are_the_same_map(client: Client) -> None:
    ((png,),) = explanations(explain(client, "classifier", PICTURE))
    ((data,),) = explanations(explain(client, "classifier", PICTURE, format="data"))
    assert np.abs(saliency(png) - saliency(data)).max() <= 0.5 / 255 + 1e-4


def test_parameters_are_those_of_explanations(client: Client) -> None:
    ((found,),) = explanations(explain(client, "classifier", PICTURE, label="green", seed=7, samples=25))
    assert (found["label"], found["seed"], found["samples"]) == ("green", 7, 25)
    again = explanations(explain(client, "classifier", PICTURE, label="green", seed=7, samples=25))
    assert again == [[found]]
    assert explanations(explain(client, "classifier", PICTURE, label="green", seed=8, samples=25)) != again


def test_what_is_explained_may_be_none_of_the_predictions(client: Client) -> None:
    instance = {"b64": PICTURE, "parameters": {"action": "predict"}}
    ((found,),) = explanations(explain(client, "classifier", instance, label="blue"))
    assert found["label"] == "blue"
    assert "index" not in found


def test_nothing_found_is_nothing_explained(client: Client) -> None:
    instance = {"b64": PICTURE, "parameters": {"labels": ["green"]}}
    answer = explain(client, "detector", instance, PICTURE).json()
    assert [len(each) for each in answer["predictions"]] == [0, 1]
    assert [len(each) for each in answer["explanations"]] == [0, 1]


def test_every_form_of_a_request(client: Client) -> None:
    path, png = "/v1/models/detector:explain", encoded(rectangle())
    expected = explanations(client.post(path, json={"instances": [PICTURE]}))
    assert explanations(client.post(path, content=png, headers={"content-type": "image/png"})) == expected
    expected = explanations(explain(client, "detector", PICTURE))
    body = {"inputs": [{"image": rectangle().tolist()}], "parameters": QUICK}
    assert explanations(client.post(path, json=body)) == expected
    event = {"specversion": "1.0", "id": "1", "source": "a", "type": "b", "data": body}
    response = client.post(path, json=event, headers={"content-type": "application/cloudevents+json"})
    assert response.headers["content-type"] == "application/cloudevents+json"
    assert response.json()["data"]["explanations"] == expected
    headers = {"ce-id": "1", "ce-source": "a", "ce-type": "b", "ce-specversion": "1.0"}
    response = client.post(path, json=body, headers=headers)
    assert response.headers["ce-type"] == "io.kserve.inference.response"
    assert explanations(response) == expected


def test_metadata_comes_back(client: Client) -> None:
    answer = explain(client, "detector", {"b64": PICTURE, "parameters": {"metadata": "m"}}, PICTURE).json()
    assert list(answer) == ["predictions", "parameters", "explanations"]
    assert answer["parameters"] == [{"metadata": "m"}, {}]


@pytest.mark.parametrize(("model", "instance"), [("half_plus_two", 1), ("greeter", "Ann"), ("teller", PICTURE)])
def test_a_model_that_cannot_be_explained_is_not_implemented(client: Client, model: str, instance: object) -> None:
    response = explain(client, model, instance)
    assert response.status_code == 501
    assert list(response.json()) == ["error"]
    assert f"'{model}'" in response.json()["error"]


@pytest.mark.parametrize(
    ("status", "parameters", "said"),
    [
        (400, {"method": "lime"}, "parameters.method: "),
        (400, {"format": "jpeg"}, "parameters.format: "),
        (400, {"format": 5}, "parameters.format: "),
        (400, {"samples": 0}, "parameters.samples: "),
        (400, {"samples": "many"}, "parameters.samples: "),
        (400, {"grid": 1}, "parameters.grid: "),
        (400, {"seed": -1}, "parameters.seed: "),
        (400, {"max_seconds": 0}, "parameters.max_seconds: "),
        (400, {"label": 5}, "parameters.label: "),
        (400, {"label": "violet"}, "parameters.label: "),
        (413, {"samples": 10**9}, "parameters.samples: "),
    ],
)
def test_bad_parameters(client: Client, status: int, parameters: dict[str, object], said: str) -> None:
    response = explain(client, "classifier", PICTURE, **parameters)
    assert response.status_code == status, response.text
    assert list(response.json()) == ["error"]
    assert response.json()["error"].startswith(said)


def test_a_format_that_is_unknown_is_none_of_the_business_of_predict(client: Client) -> None:
    body = {"instances": [PICTURE], "parameters": {"format": "jpeg"}}
    assert client.post("/v1/models/detector:predict", json=body).status_code == 200


def test_errors_name_the_fields_of_the_request(client: Client) -> None:
    for instances, said in (
        ([PICTURE, {"b64": "YWJj"}], "instances[1].b64: Expected an encoded image"),
        ([{"b64": PICTURE, "parameters": {"top_k": 0}}], "instances[0].parameters.top_k: "),
        ([], "instances: Expected at least one instance"),
    ):
        response = explain(client, "detector", *instances)
        assert response.status_code == 400, response.text
        assert response.json()["error"].startswith(said)
    body = {"inputs": [PICTURE], "parameters": {"format": "jpeg"}}
    event = {"specversion": "1.0", "id": "1", "source": "a", "type": "b", "data": body}
    headers = {"content-type": "application/cloudevents+json"}
    response = client.post("/v1/models/detector:explain", json=event, headers=headers)
    assert response.json()["error"].startswith("data.parameters.format: ")


def test_a_model_that_is_not_there_or_fails(client: Client) -> None:
    response = explain(client, "nobody", PICTURE)
    assert (response.status_code, response.json()) == (404, {"error": "Model with name nobody does not exist."})
    response = explain(client, "failing", PICTURE)
    assert (response.status_code, list(response.json())) == (500, ["error"])


def test_more_numbers_than_an_answer_may_hold(client: Client) -> None:
    picture = base64_text(encoded(rectangle(2500, 1700, (100, 100, 900, 900))))
    response = explain(client, "classifier", picture, format="data", samples=4)
    assert response.status_code == 413
    assert response.json()["error"] == (
        "parameters.format: Expected to write at most 4,000,000 pixels as data, got 4,250,000; ask for png"
    )
    ((found,),) = explanations(explain(client, "classifier", picture, samples=4))
    assert saliency(found).shape == (1700, 2500)


def test_more_pictures_than_an_answer_may_hold() -> None:
    found = Explanation(
        label="a",
        score=0.5,
        record=LabelledScore(label="a", score=0.5),
        coarse=np.zeros((2, 2), np.float32),
        width=8000,
        height=8000,
        method=ExplanationMethod.RISE,
        samples=1,
        seed=0,
    )
    with pytest.raises(InferenceError, match=r"256,000,000 pixels as png, got 320,000,000; ask for fewer max_objects"):
        wire_explanations([[]], [[[found] * 5]], SaliencyFormat.PNG)


class Gate:
    """A classifier that says when it is asked for the first time, and answers when it is let."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.let = threading.Event()

    def __call__(self, inputs: Sequence[ClassificationInput]) -> Sequence[Classification]:
        self.asked.set()
        assert self.let.wait(60)
        return classify(inputs)


def test_nobody_waits_for_an_explanation_whose_sender_has_left() -> None:
    gate = Gate()

    def load(source: ModelSource) -> Servable:
        description = ModelDescription(
            task_type=TaskType.IMAGE_CLASSIFICATION,
            platform="gate",
            layout="none",
            labels=LABELS,
            inputs=(),
            outputs=(),
            facts=(),
        )
        return BoundServable(ImageClassification(), gate, description, {})

    source = ModelSource(name="gate", version="1", folder=Path("gate"), settings=ModelSettings())
    app = application([source], load)
    body = json.dumps({"instances": [PICTURE]}).encode()
    sent: list[Any] = []

    async def call() -> None:
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            if messages:
                return messages.pop()
            assert await asyncio.to_thread(gate.asked.wait, 60)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        path = "/v1/models/gate:explain"
        scope: Any = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
            "client": None,
            "server": None,
        }
        await asyncio.wait_for(app(scope, receive, send), 60)

    try:
        asyncio.run(call())
        assert not gate.let.is_set()
    finally:
        gate.let.set()
    assert sent[0]["status"] == 504
