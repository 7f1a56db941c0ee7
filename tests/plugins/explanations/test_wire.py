"""Test V1 explanations beside their golden cases: maps next to predictions, and their size."""

import base64
from collections.abc import Iterator
from typing import Any

import cv2
import httpx
import numpy as np
import pytest
from litestar import Litestar
from litestar.testing import TestClient
from numpy.typing import NDArray

from app.plugins.explanations.wire import SaliencyFormat, wire_explanations
from tasks.inference.error import ErrorKind
from tests.plugins.explanations.test_sampling import sized_explanation
from tests.support.data.chariot import IMAGE
from tests.support.data.images import encode_base64, encode_image, rectangle
from tests.support.models.fake_models import FAKE_MODELS
from tests.support.rejection import rejects
from tests.support.servers.apps import app_with_models

Client = TestClient[Litestar]

FAST_SETTINGS = {"samples": 40, "grid": 4}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with TestClient(app_with_models(tuple(FAKE_MODELS))) as client:
        yield client


def explain(client: Client, model: str, *instances: object, **parameters: object) -> httpx.Response:
    body = {"instances": instances, "parameters": {**FAST_SETTINGS, **parameters}}
    return client.post(f"/v1/models/{model}:explain", json=body)


def explanations(response: httpx.Response) -> list[list[dict[str, Any]]]:
    assert response.status_code == 200, response.text
    return response.json()["explanations"]


def saliency(explanation: dict[str, Any]) -> NDArray[Any]:
    """Return the map as an array (height, width) from 0 to 1, from either format."""
    encoded_map = explanation["saliency"]
    if "data" in encoded_map:
        return np.array(encoded_map["data"])
    grey = cv2.imdecode(np.frombuffer(base64.b64decode(encoded_map["png"]), np.uint8), cv2.IMREAD_UNCHANGED)
    assert grey is not None
    return grey / 255


@pytest.mark.parametrize("model", ["classifier", "detector", "oriented", "segmenter"])
def test_explain_returns_the_predictions_of_predict(client: Client, model: str) -> None:
    predicted = client.post(f"/v1/models/{model}:predict", json={"instances": [IMAGE, IMAGE]}).json()
    answer = explain(client, model, IMAGE, IMAGE).json()
    assert list(answer) == ["predictions", "explanations"]
    assert answer["predictions"] == predicted["predictions"]
    assert len(answer["explanations"]) == 2
    for image_explanations, records in zip(answer["explanations"], answer["predictions"], strict=True):
        assert image_explanations
        for explanation in image_explanations:
            assert list(explanation) == ["label", "score", "index", "saliency", "method", "samples", "seed"]
            record = records[explanation["index"]]
            assert (explanation["label"], explanation["score"]) == (record["label"], pytest.approx(record["score"]))
            assert (explanation["method"], explanation["samples"], explanation["seed"]) == ("rise", 40, 0)
            assert explanation["saliency"]["shape"] == [48, 64]


def test_saliency_map_has_the_image_size_and_highlights_the_object_in_both_formats(client: Client) -> None:
    image_base64 = encode_base64(encode_image(rectangle(60, 40, (32, 22, 56, 38))))
    maps: list[NDArray[Any]] = []
    for name in ("png", "data"):
        answer = explain(client, "detector", image_base64, method="occlusion", format=name, grid=6)
        ((explanation,),) = explanations(answer)
        assert set(explanation["saliency"]) == {"shape", name}
        maps.append(saliency(explanation))
    png, heatmap = maps
    assert heatmap.shape == (40, 60)
    assert 0 <= heatmap.min() <= heatmap.max() <= 1
    assert heatmap[20:, 30:].mean() > 2 * heatmap[:20, :30].mean()
    assert np.abs(png - heatmap).max() <= 0.5 / 255 + 1e-4


def test_event_is_answered_with_an_event(client: Client) -> None:
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "a", "ce-type": "b"}
    body = {"inputs": [IMAGE], "parameters": FAST_SETTINGS}
    response = client.post("/v1/models/detector:explain", json=body, headers=headers)
    assert response.headers["ce-type"] == "io.kserve.inference.response"
    assert response.json()["explanations"] == explanations(explain(client, "detector", IMAGE))


def test_image_without_objects_has_no_explanations_beside_one_that_has(client: Client) -> None:
    answer = explain(client, "detector", {"b64": IMAGE, "parameters": {"labels": ["green"]}}, IMAGE).json()
    assert [len(results) for results in answer["predictions"]] == [0, 1]
    assert [len(results) for results in answer["explanations"]] == [0, 1]


@pytest.mark.parametrize(
    ("encoding", "size", "message"),
    [
        (SaliencyFormat.DATA, (2500, 1700), "at most 4,000,000 pixels as data, got 4,250,000; ask for png"),
        (SaliencyFormat.PNG, (16_001, 16_000), "256,000,000 pixels as png, got 256,016,000; ask for fewer max_objects"),
    ],
)
def test_too_many_pixels_of_a_response_are_rejected(
    encoding: SaliencyFormat, size: tuple[int, int], message: str
) -> None:
    with rejects(message, "parameters.format", ErrorKind.TOO_LARGE):
        wire_explanations([[]], [[sized_explanation(*size)]], encoding)
