"""Test the tensor view of vision models, over every protocol that takes tensors."""

import json
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.core.assembly.discovery import discover
from app.core.assembly.models import load
from app.core.engine.request_context import RequestContext
from app.core.settings.server import DEMO_MODELS
from tests.core.runtimes.onnxruntime import graphs
from tests.support.data.chariot import Client
from tests.support.models.engines import engine_of
from tests.support.servers.apps import app_with_sources

VIEW = "detector@tensors"
PIXELS = np.random.default_rng(7).integers(2, size=(2, 3, 192, 192)).astype(np.float32)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository with a detector, a model of tensors, and a classifier whose view is disabled."""
    root = tmp_path_factory.mktemp("models")
    for name in ("detector", "half_plus_two", "classifier"):
        shutil.copytree(DEMO_MODELS / name, root / name)
    for name, settings in (("classifier", {"tensor_view": False}), ("detector", {"max_waiting": 0})):
        (root / name / "model-settings.json").write_text(json.dumps(settings))
    return root


@pytest.fixture(scope="module")
def client(root: Path, request: pytest.FixtureRequest) -> Generator[TestClient[Litestar]]:
    """Serve the repository over V2, and one more protocol that a test names."""
    protocol = getattr(request, "param", "chariot-v2-kserve")
    with TestClient(app_with_sources(discover(root), load, protocol)) as client:
        yield client


@pytest.fixture(scope="module")
def expected() -> Any:
    """Return what ONNX Runtime answers for `PIXELS`."""
    session = onnxruntime.InferenceSession(DEMO_MODELS / "detector" / "model.onnx")
    return session.run(None, {"images": PIXELS})[0]


def answer(client: Client, path: str, body: dict[str, object]) -> Any:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def tensor_of(pixels: np.ndarray[Any, Any] = PIXELS) -> dict[str, object]:
    return {"name": "images", "datatype": "FP32", "shape": [*pixels.shape], "data": pixels.ravel().tolist()}


def names_in(client: Client) -> list[str]:
    return [entry["name"] for entry in client.post("/v2/repository/index").json()]


def test_view_takes_and_returns_the_tensors_of_the_graph_over_v2(client: Client, expected: Any) -> None:
    metadata = client.get(f"/v2/models/{VIEW}").json()
    assert (metadata["name"], metadata["versions"]) == (VIEW, ["1"])
    assert metadata["inputs"] == [{"name": "images", "datatype": "FP32", "shape": [-1, 3, 192, 192]}]
    assert [output["name"] for output in metadata["outputs"]] == ["output0"]
    for path in (f"/v2/models/{VIEW}/infer", "/v2/models/detector%40tensors/versions/1/infer"):
        (output,) = answer(client, path, {"inputs": [tensor_of()]})["outputs"]
        np.testing.assert_array_equal(np.array(output["data"], np.float32).reshape(output["shape"]), expected)
    assert f'charioteer_inferences_total{{model="{VIEW}",outcome="ok"' in client.get("/metrics").text


@pytest.mark.parametrize("client", ["tensorflow-serving"], indirect=True)
def test_view_answers_as_a_signature_of_tensorflow_serving(client: Client, expected: Any) -> None:
    status = client.get(f"/v1/models/{VIEW}").json()["model_version_status"]
    assert [version["state"] for version in status] == ["AVAILABLE"]
    rows = answer(client, f"/v1/models/{VIEW}/versions/1:predict", {"instances": PIXELS.tolist()})["predictions"]
    np.testing.assert_array_equal(np.array(rows, np.float32), expected)


@pytest.mark.parametrize("client", ["grps"], indirect=True)
@pytest.mark.parametrize("name", [VIEW, f"{VIEW}-1"])
def test_view_answers_and_is_described_over_grps(client: Client, name: str, expected: Any) -> None:
    tensor = {
        "name": "images",
        "dtype": "DT_FLOAT32",
        "shape": [*PIXELS.shape],
        "flat_float32": PIXELS.ravel().tolist(),
    }
    body = {"model": name, "gtensors": {"tensors": [tensor]}}
    (output,) = answer(client, "/grps/v1/infer/predict", body)["gtensors"]["tensors"]
    np.testing.assert_array_equal(np.array(output["flat_float32"], np.float32).reshape(output["shape"]), expected)
    assert f"name: {VIEW}" in answer(client, "/grps/v1/metadata/server", {})["str_data"]


def test_views_are_listed_with_models_except_where_models_answer_with_texts(client: Client) -> None:
    names = ["classifier", "detector", VIEW, "half_plus_two"]
    assert client.get("/v2/models").json()["models"] == client.get("/v1/models").json()["models"] == names
    assert sorted(names_in(client)) == names
    assert VIEW not in client.get("/openai/v1/models").text
    statistics = {entry["name"]: entry for entry in client.get("/v2/models/stats").json()["model_stats"]}
    assert statistics.keys() == set(names)


@pytest.mark.parametrize("name", ["classifier@tensors", "half_plus_two@tensors", "none@tensors", f"{VIEW}@tensors"])
def test_model_without_a_view_has_no_second_name(client: Client, name: str) -> None:
    response = client.post(f"/v2/models/{name}/infer", json={"inputs": [tensor_of()]})
    assert (response.status_code, "is not known" in response.text) == (404, True)


def test_view_comes_and_goes_with_its_model(client: Client) -> None:
    assert client.get(f"/v2/models/{VIEW}/versions/9").status_code == 404
    for action in ("load", "unload"):
        rejected = client.post(f"/v2/repository/models/{VIEW}/{action}")
        assert (rejected.status_code, "tensor view of the model 'detector'" in rejected.text) == (400, True)
    client.post("/v2/repository/models/detector/unload")
    assert VIEW not in names_in(client)
    for path in (f"/v2/models/{VIEW}", f"/v2/models/{VIEW}/ready"):
        assert client.get(path).status_code == 503
    client.post("/v2/repository/models/detector/load")
    assert client.get(f"/v2/models/{VIEW}/ready").status_code == 200
    assert VIEW in names_in(client)


def test_view_shares_the_model_and_the_limit_of_its_queue(root: Path) -> None:
    engine = engine_of(discover(root), load, workers=1)
    view, model = (engine.registry.find(name).ready_servable() for name in (VIEW, "detector"))
    assert view.model is model.model
    assert engine.overload(VIEW) is None
    for _ in range(2):
        engine.admission.acquire(RequestContext(protocol="", request_id=""), "detector")
    assert "'detector'" in str(engine.overload(VIEW))


def test_images_far_above_the_size_of_the_model_are_too_large_for_a_dynamic_graph(tmp_path: Path) -> None:
    (tmp_path / "means").mkdir()
    graphs.channel_means(
        tmp_path / "means" / "model.onnx",
        shape=("b", 3, "h", "w"),
        properties=graphs.properties("classify", "rgb", (8, 8)),
    )
    with TestClient(app_with_sources(discover(tmp_path), load)) as client:
        for side, status in ((16, 200), (17, 413)):
            body = {"inputs": [tensor_of(np.zeros((3, 3, side, 16), np.float32))]}
            response = client.post("/v2/models/means@tensors/infer", json=body)
            assert response.status_code == status, response.text
    assert '"preprocessing"' in response.json()["error"]
