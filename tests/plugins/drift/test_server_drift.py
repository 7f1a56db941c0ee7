"""Drift detection in a server: its settings and its results."""

import base64
import importlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import httpx
import pytest
from prometheus_client import CollectorRegistry

from app.core.assembly.service import Service
from app.core.plugins import registry
from app.core.settings.model import ModelSource
from app.core.settings.server import ServerSettings, SettingsError
from app.plugins.authoring.pack import write_manifest
from app.plugins.drift.baseline import Baseline, write_baseline
from app.plugins.drift.measurement import BUNDLED, DriftInput, measure_images
from app.plugins.drift.sample import build_sample
from app.plugins.drift.service import Drift, load_embedder
from app.plugins.drift.settings import DriftSettings
from tasks.vision.image import Image
from tests.support.data.drift_samples import sample
from tests.support.polling import wait_until
from tests.support.servers.server_process import ROOT, run_server

WORLD: Any = importlib.import_module("fixtures.drift_world")


def repository(folder: Path, baseline: Baseline | None) -> Path:
    """Make a model repository of the fixture detector, with `baseline` if there is one."""
    (folder / "detector").mkdir()
    shutil.copy(ROOT / "fixtures" / "models" / "detector" / "model.onnx", folder / "detector")
    if baseline is not None:
        write_baseline(folder / "detector" / "drift-baseline.npz", baseline)
    return folder


def sources(folder: Path) -> Sequence[ModelSource]:
    return [ModelSource(name="detector", version="1", folder=folder / "detector")]


def check_rejected(folder: Path, message: str, settings: ServerSettings | None = None) -> None:
    """Check that a server of this repository does not start with the settings, by default with ``--drift``."""
    with pytest.raises(SettingsError, match=message):
        Service(settings or registry().settings(drift=True), lambda: sources(folder))


def test_models_may_come_after_the_start() -> None:
    Drift(DriftSettings(drift=True), list, CollectorRegistry()).close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (registry().settings(drift=True), "--drift needs a drift-baseline.npz in the folder of a model"),
        (registry().settings(drift_similarity=True), "--drift-similarity needs --drift"),
    ],
)
def test_incomplete_drift_settings_are_rejected(tmp_path: Path, settings: ServerSettings, message: str) -> None:
    check_rejected(repository(tmp_path, None), message, settings)


def test_baseline_with_another_embedder_is_rejected(tmp_path: Path) -> None:
    folder = repository(tmp_path, Baseline(sample=sample(40), embedder="mine.onnx", embedder_digest="0"))
    check_rejected(folder, "put mine.onnx beside it")


def test_baseline_must_match_the_manifest_of_its_model(tmp_path: Path) -> None:
    folder = repository(tmp_path, Baseline(sample=sample(40)))
    write_manifest(folder / "detector")
    Drift(DriftSettings(drift=True), lambda: sources(folder), CollectorRegistry()).close()
    write_baseline(folder / "detector" / "drift-baseline.npz", Baseline(sample=sample(41)))
    check_rejected(folder, r"drift-baseline\.npz is not the file that ")


def test_baseline_outside_the_model_folder_is_rejected(tmp_path: Path) -> None:
    folder = repository(tmp_path, Baseline(sample=sample(40)))
    (folder / "detector" / "drift-baseline.npz").rename(folder / "elsewhere.npz")
    (folder / "detector" / "drift-baseline.npz").symlink_to("../elsewhere.npz")
    check_rejected(folder, "leads out of the model's folder")


@pytest.mark.slow
def test_server_reports_similarity_and_drift(tmp_path: Path) -> None:
    embedder = load_embedder(BUNDLED)
    photos = enumerate(WORLD.camera_images(1, 80))
    seen = [DriftInput(id=str(index), image=Image(photo.pixels)) for index, photo in photos]
    measured = build_sample(measure_images(seen, "", embedder))
    baseline = Baseline(sample=measured, embedder=embedder.name, embedder_digest=embedder.digest)
    folder = repository(tmp_path, baseline)
    options = ("--model-repository", str(folder), "--drift", "--drift-similarity", "--drift-window", "30")
    with run_server(*options) as server, httpx.Client(base_url=server.address, timeout=60) as client:
        for index, photo in enumerate(WORLD.camera_images(2, 30)):
            data = base64.b64encode(cv2.imencode(".png", WORLD.blurred(photo.pixels)[..., ::-1])[1].tobytes()).decode()
            tensor = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [data]}
            path = "/v2/models/m-detector/infer" if index % 2 else "/v2/models/detector/infer"
            response = client.post(path, json={"inputs": [tensor]})
            (output,) = response.json()["outputs"]
            assert 0 <= output["parameters"]["similarity"] <= 1
            assert float(response.headers["charioteer-similarity"]) == output["parameters"]["similarity"]
        # The metrics are updated first.
        wait_until(lambda: "detector" in client.get("/page/drift.json").json())
        assert 'charioteer_drift_detected{model="detector"} 1.0' in client.get("/metrics").text
        (window,) = client.get("/page/drift.json").json()["detector"]
        names = [test["name"] for test in window["tests"] if test["drifted"]]
        assert "Kolmogorov-Smirnov" in names
        assert server.stop() == 0
        assert any("detector has drifted: " in line for line in server.log)
