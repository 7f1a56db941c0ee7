"""Serve what KServe's storage initializer writes to /mnt/models, on the paths that KServe requests."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.deploy.kustomize import KSERVE, read
from tests.support.data.chariot import image_input
from tests.support.data.images import encode_base64
from tests.support.servers.server_process import ROOT, run_server

SCENE = encode_base64((ROOT / "fixtures/images/scene.jpg").read_bytes())
RUNTIME = read(KSERVE / "base" / "runtime.yaml")["spec"]


@pytest.mark.slow
def test_server_answers_probes_metrics_and_inference_of_kserve(tmp_path: Path) -> None:
    mount, name = tmp_path / "mnt" / "models", "my-service"
    mount.mkdir(parents=True)
    shutil.copy(ROOT / "fixtures/models/detector/model.onnx", mount)
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
