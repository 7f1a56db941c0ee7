"""What KServe's storage initializer leaves in /mnt/models, served by a real server at the paths that KServe asks."""

import base64
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.assembly.discovery import discover
from tests.deploy.kustomize import FOLDER, read
from tests.support.server_process import ROOT, serving

MODELS = ROOT / "fixtures" / "models"
SCENE = base64.b64encode((ROOT / "fixtures/images/scene.jpg").read_bytes()).decode()
RUNTIME = read(FOLDER / "base" / "runtime.yaml")["spec"]


def one_file(mount: Path) -> None:
    shutil.copy(MODELS / "detector/model.onnx", mount)


def one_file_of_another_name(mount: Path) -> None:
    shutil.copy(MODELS / "detector/model.onnx", mount / "shapes.onnx")


def a_named_model(mount: Path) -> None:
    one_file(mount)
    (mount / "model-settings.json").write_text('{"name": "shapes"}')


def versions(mount: Path) -> None:
    for version in ("1", "2"):
        shutil.copytree(MODELS / "detector", mount / version)


def a_repository(mount: Path) -> None:
    for name in ("classifier", "detector"):
        shutil.copytree(MODELS / name, mount / name)


def a_hugging_face_folder(mount: Path) -> None:
    shutil.copytree(MODELS / "vlm", mount, dirs_exist_ok=True)


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    made = tmp_path / "mnt" / "models"
    made.mkdir(parents=True)
    return made


@pytest.mark.parametrize(
    ("lay_out", "names"),
    [
        (one_file, ["models"]),
        (one_file_of_another_name, ["models"]),
        (a_named_model, ["shapes"]),
        (versions, ["models", "models"]),
        (a_repository, ["classifier", "detector"]),
        (a_hugging_face_folder, ["models"]),
    ],
)
def test_models_are_found_under_these_names(mount: Path, lay_out: Callable[[Path], None], names: list[str]) -> None:
    lay_out(mount)
    assert [each.name for each in discover(mount)] == names


@pytest.mark.slow
@pytest.mark.parametrize(("lay_out", "name"), [(a_named_model, "shapes"), (a_repository, "detector")])
def test_a_service_answers_what_kserve_and_its_clients_ask(
    mount: Path, lay_out: Callable[[Path], None], name: str
) -> None:
    lay_out(mount)
    (container,) = RUNTIME["containers"]
    with (
        serving(environment={**os.environ, "MODEL_DIR": str(mount)}) as server,
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
        second = client.post(f"/v2/models/{name}/infer", json={"inputs": [image]}).json()
        first = client.post(f"/v1/models/{name}:predict", json={"instances": [{"image": {"b64": SCENE}}]}).json()
        found: list[dict[str, Any]] = [json.loads(each) for each in second["outputs"][0]["data"]]
        assert "purple star" in json.dumps(found)
        assert "purple star" in json.dumps(first["predictions"])
