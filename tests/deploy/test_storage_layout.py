"""Serve the layouts that KServe's storage initializer writes to /mnt/models, on the paths that KServe requests."""

import base64
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.core.assembly.discovery import discover
from tests.deploy.kustomize import KSERVE, read
from tests.support.servers.server_process import ROOT, run_server

MODELS = ROOT / "fixtures" / "models"
SCENE = base64.b64encode((ROOT / "fixtures/images/scene.jpg").read_bytes()).decode()
RUNTIME = read(KSERVE / "base" / "runtime.yaml")["spec"]


def one_file(mount: Path) -> None:
    shutil.copy(MODELS / "detector/model.onnx", mount)


def one_file_with_other_name(mount: Path) -> None:
    shutil.copy(MODELS / "detector/model.onnx", mount / "shapes.onnx")


def named_model(mount: Path) -> None:
    one_file(mount)
    (mount / "model-settings.json").write_text('{"name": "shapes"}')


def versions(mount: Path) -> None:
    for version in ("1", "2"):
        shutil.copytree(MODELS / "detector", mount / version)


def repository(mount: Path) -> None:
    for name in ("classifier", "detector"):
        shutil.copytree(MODELS / name, mount / name)


def hugging_face_folder(mount: Path) -> None:
    shutil.copytree(MODELS / "vlm", mount, dirs_exist_ok=True)


def triton_repository(mount: Path) -> None:
    shutil.copytree(MODELS / "detector", mount / "shapes" / "1")
    (mount / "shapes" / "config.pbtxt").write_text('platform: "onnxruntime_onnx"\nmax_batch_size: 8\n')


def mlflow_model(mount: Path) -> None:
    one_file(mount)
    (mount / "MLmodel").write_text("flavors:\n  onnx:\n    data: model.onnx\n")


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    folder = tmp_path / "mnt" / "models"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    ("write_layout", "names"),
    [
        (one_file, ["models"]),
        (one_file_with_other_name, ["models"]),
        (named_model, ["shapes"]),
        (versions, ["models", "models"]),
        (repository, ["classifier", "detector"]),
        (hugging_face_folder, ["models"]),
        (triton_repository, ["shapes"]),
        (mlflow_model, ["models"]),
    ],
)
def test_models_are_discovered_with_expected_names(
    mount: Path, write_layout: Callable[[Path], None], names: list[str]
) -> None:
    write_layout(mount)
    assert [source.name for source in discover(mount)] == names


@pytest.mark.slow
@pytest.mark.parametrize(("write_layout", "name"), [(one_file, "my-service"), (repository, "detector")])
def test_server_answers_probes_metrics_and_inference_of_kserve(
    mount: Path, write_layout: Callable[[Path], None], name: str
) -> None:
    write_layout(mount)
    (container,) = RUNTIME["containers"]
    arguments = [argument.replace("{{.Name}}", "my-service") for argument in container["args"][1:]]
    with (
        run_server(*arguments, environment={**os.environ, "MODEL_DIR": str(mount)}) as server,
        httpx.Client(base_url=server.address, timeout=60) as client,
    ):
        for probe in ("livenessProbe", "readinessProbe"):
            assert client.get(container[probe]["httpGet"]["path"]).status_code == 200
        metrics = client.get(RUNTIME["annotations"]["prometheus.kserve.io/path"])
        assert "charioteer_inferences_total" in metrics.text

        assert name in client.get("/v1/models").json()["models"]
        assert client.get(f"/v1/models/{name}").json() == {"name": name, "ready": True}
        assert client.get(f"/v2/models/{name}").json()["name"] == name
        assert client.get(f"/v2/models/{name}/ready").status_code == 200

        image = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [SCENE]}
        v2 = client.post(f"/v2/models/{name}/infer", json={"inputs": [image]}).json()
        v1 = client.post(f"/v1/models/{name}:predict", json={"instances": [{"image": {"b64": SCENE}}]}).json()
        predictions: list[dict[str, Any]] = [json.loads(records) for records in v2["outputs"][0]["data"]]
        assert "purple star" in json.dumps(predictions)
        assert "purple star" in json.dumps(v1["predictions"])
