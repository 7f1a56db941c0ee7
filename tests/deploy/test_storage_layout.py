"""Serve the layouts that KServe's storage initializer writes to /mnt/models, on the paths that KServe requests."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.core.assembly.discovery import discover
from tests.deploy.kustomize import KSERVE, read
from tests.support.data.chariot import image_input
from tests.support.data.images import encode_base64
from tests.support.servers.server_process import ROOT, run_server

MODELS = ROOT / "fixtures" / "models"
SCENE = encode_base64((ROOT / "fixtures/images/scene.jpg").read_bytes())
RUNTIME = read(KSERVE / "base" / "runtime.yaml")["spec"]


DETECTOR = MODELS / "detector"
Layout = Mapping[str, Path | str]
"""Files and folders by their path: copies, or texts."""
LAYOUTS: Mapping[str, tuple[Layout, Sequence[str]]] = {
    "one file": ({"model.onnx": DETECTOR / "model.onnx"}, ["models"]),
    "another name": ({"shapes.onnx": DETECTOR / "model.onnx"}, ["models"]),
    "named": ({"model.onnx": DETECTOR / "model.onnx", "model-settings.json": '{"name": "shapes"}'}, ["shapes"]),
    "versions": ({"1": DETECTOR, "2": DETECTOR}, ["models", "models"]),
    "repository": ({"classifier": MODELS / "classifier", "detector": DETECTOR}, ["classifier", "detector"]),
    "Hugging Face": ({".": MODELS / "vlm"}, ["models"]),
    "Triton": (
        {"shapes/1": DETECTOR, "shapes/config.pbtxt": 'platform: "onnxruntime_onnx"\nmax_batch_size: 8\n'},
        ["shapes"],
    ),
}
"""Each layout with the names of its models."""


def write_layout(name: str, folder: Path) -> Path:
    """Write a layout into the folder that KServe mounts."""
    mount = folder / "mnt" / "models"
    mount.mkdir(parents=True)
    for path, content in LAYOUTS[name][0].items():
        if isinstance(content, str):
            (mount / path).write_text(content)
        elif content.is_dir():
            shutil.copytree(content, mount / path, dirs_exist_ok=True)
        else:
            shutil.copy(content, mount / path)
    return mount


@pytest.mark.parametrize("layout", LAYOUTS)
def test_models_are_discovered_with_expected_names(tmp_path: Path, layout: str) -> None:
    assert [source.name for source in discover(write_layout(layout, tmp_path))] == LAYOUTS[layout][1]


@pytest.mark.slow
def test_server_answers_probes_metrics_and_inference_of_kserve(tmp_path: Path) -> None:
    mount, name = write_layout("one file", tmp_path), "my-service"
    (container,) = RUNTIME["containers"]
    arguments = [argument.replace("{{.Name}}", name) for argument in container["args"][1:]]
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

        v2 = client.post(f"/v2/models/{name}/infer", json={"inputs": [image_input(SCENE)]}).json()
        v1 = client.post(f"/v1/models/{name}:predict", json={"instances": [{"image": {"b64": SCENE}}]}).json()
        predictions: list[dict[str, Any]] = [json.loads(records) for records in v2["outputs"][0]["data"]]
        assert "purple star" in json.dumps(predictions)
        assert "purple star" in json.dumps(v1["predictions"])
