"""Test Triton's repository and statistics extensions over REST."""

from collections.abc import Iterator
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.core.assembly.discovery import discover
from app.core.assembly.models import load
from app.core.settings.server import DEMO_MODELS
from tests.support.data.chariot import IMAGE, Client, image_input
from tests.support.servers.apps import app_with_models, app_with_sources

HALF_PLUS_TWO = (DEMO_MODELS / "half_plus_two" / "model.onnx").read_bytes()
HALF_PLUS_THREE = (DEMO_MODELS / "half_plus_three" / "model.onnx").read_bytes()

REQUEST = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}

LOAD = "/v2/repository/models/{}/load"
UNLOAD = "/v2/repository/models/{}/unload"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient[Litestar]]:
    """Serve two versions of one model, and a second model."""
    root = tmp_path_factory.mktemp("models")
    for name, content in (("half/1", HALF_PLUS_TWO), ("half/2", HALF_PLUS_THREE), ("other", HALF_PLUS_TWO)):
        (root / name).mkdir(parents=True)
        (root / name / "model.onnx").write_bytes(content)
    with TestClient(app_with_sources(discover(root), load)) as client:
        yield client


def predict(client: Client, model: str) -> float:
    """Return the prediction of a model for 1."""
    response = client.post(f"/v2/models/{model}/infer", json=REQUEST)
    assert response.status_code == 200, response.text
    return response.json()["outputs"][0]["data"][0]


def index(client: Client, **body: object) -> dict[tuple[str, str], tuple[str, str]]:
    """Return state and reason by name and version."""
    response = client.post("/v2/repository/index", json=body) if body else client.post("/v2/repository/index")
    assert response.status_code == 200
    return {(model["name"], model["version"]): (model["state"], model["reason"]) for model in response.json()}


def test_latest_version_is_the_default_and_every_version_is_served(client: Client) -> None:
    assert predict(client, "half") == 3.5, "the latest version"
    assert predict(client, "half/versions/1") == 2.5
    assert predict(client, "half/versions/2") == 3.5
    assert client.get("/v2/models/half").json()["versions"] == ["1", "2"]
    assert client.get("/v2/models/half/versions/1").json()["name"] == "half"
    assert client.get("/v2/models/half/versions/3").status_code == 404
    assert client.post("/v2/models/half/infer", json=REQUEST).json()["model_version"] == "2"


def test_index_lists_every_version(client: Client) -> None:
    ready = ("READY", "")
    assert index(client) == {("half", "1"): ready, ("half", "2"): ready, ("other", "1"): ready}
    assert index(client, ready=True) == index(client)


def test_unloaded_model_is_unavailable_until_it_is_loaded_again(client: Client) -> None:
    assert client.post(UNLOAD.format("half")).status_code == 200
    response = client.post("/v2/models/half/infer", json=REQUEST)
    assert response.status_code == 503
    assert list(response.json()) == ["error"]
    for path in ("/v2/models/half", "/v2/models/half/ready", "/v2/models/half/versions/1/ready"):
        assert client.get(path).status_code == 503
    unloaded = dict.fromkeys((("half", "1"), ("half", "2")), ("UNAVAILABLE", "unloaded"))
    assert index(client) == {**unloaded, ("other", "1"): ("READY", "")}
    assert list(index(client, ready=True)) == [("other", "1")]
    assert client.get("/v2/health/ready").json() == {"ready": True}, "a deliberate unload does not affect readiness"
    assert predict(client, "other") == 2.5
    assert client.post(UNLOAD.format("half")).status_code == 200, "a second unload changes nothing"
    assert client.post(LOAD.format("half"), json={"parameters": {}}).status_code == 200
    assert predict(client, "half") == 3.5
    assert index(client)["half", "1"] == ("READY", "")


def stats(client: Client, path: str = "") -> dict[str, Any]:
    """Return the statistics of the only model version at `path`."""
    response = client.get(f"/v2/models{path}/stats")
    assert response.status_code == 200
    (entry,) = response.json()["model_stats"]
    return entry


def test_statistics_count_inferences_and_executions() -> None:
    with TestClient(app_with_models(("detector",))) as client:
        before = stats(client)
        assert (before["name"], before["version"], before["batch_stats"]) == ("detector", "1", [])
        assert (before["last_inference"], before["inference_count"]) == (0, 0)
        for images in ([IMAGE], [IMAGE] * 3, [IMAGE] * 3):
            assert client.post("/v2/models/detector/infer", json={"inputs": [image_input(images)]}).is_success
        assert client.post("/v2/models/detector/infer", json={"inputs": [image_input("aGk=")]}).status_code == 400
        for path in ("", "/detector", "/detector/versions/1"):
            after = stats(client, path)
            assert (after["inference_count"], after["execution_count"]) == (7, 3)
            batches = {batch["batch_size"]: batch["compute_infer"]["count"] for batch in after["batch_stats"]}
            assert batches == {1: 1, 3: 2}
            counts = {name: duration["count"] for name, duration in after["inference_stats"].items()}
            steps = ("success", "queue", "compute_input", "compute_infer", "compute_output")
            assert counts == {**dict.fromkeys(steps, 3), "fail": 1, "cache_hit": 0, "cache_miss": 0}
            assert after["last_inference"] > 1.6e12, "milliseconds"
        durations = after["inference_stats"]
        phases_ns = sum(durations[name]["ns"] for name in ("queue", "compute_input", "compute_infer", "compute_output"))
        assert 0 < phases_ns <= durations["success"]["ns"]


def test_statistics_are_counted_per_model_version(client: Client) -> None:
    entries = client.get("/v2/models/stats").json()["model_stats"]
    assert [(entry["name"], entry["version"]) for entry in entries] == [("half", "1"), ("half", "2"), ("other", "1")]
    before = [stats(client, f"/half/versions/{version}")["inference_count"] for version in "12"]
    predict(client, "half/versions/1")
    after = [stats(client, f"/half/versions/{version}")["inference_count"] for version in "12"]
    assert after == [before[0] + 1, before[1]]
    assert len(client.get("/v2/models/half/stats").json()["model_stats"]) == 2
