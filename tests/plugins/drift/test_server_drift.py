"""Drift detection in a server: its settings and its results."""

import base64
import importlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import httpx
import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from app.core.assembly.discovery import model_at
from app.core.assembly.models import load
from app.core.assembly.service import Service
from app.core.engine.models.registry import Registry
from app.core.plugins import registry
from app.core.settings.model import ModelSource
from app.core.settings.server import ServerSettings, SettingsError
from app.inputs import predict_records
from app.plugins.authoring.pack import write_manifest
from app.plugins.drift.baseline import Baseline, write_baseline
from app.plugins.drift.measurement import BUNDLED
from app.plugins.drift.service import Drift, ModelEmbedder
from app.plugins.drift.settings import DriftSettings
from tasks.tensor_inference import TensorRecord
from tasks.vision.image import Image
from tests.plugins.drift.test_command import run, write_images
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


def with_encoder(folder: Path) -> Path:
    """Add a model whose embeddings are recognised without a declaration, and return its folder."""
    (folder / "encoder").mkdir()
    shutil.copy(BUNDLED, folder / "encoder" / "model.onnx")
    return folder / "encoder"


def png(pixels: Any) -> bytes:
    return cv2.imencode(".png", pixels[..., ::-1])[1].tobytes()


def sources(folder: Path) -> Sequence[ModelSource]:
    return [source for path in sorted(folder.iterdir()) if path.is_dir() for source in model_at(path)]


def check_rejected(folder: Path, message: str, settings: ServerSettings | None = None) -> None:
    """Check that a server of this repository does not start with the settings, by default with ``--drift``."""
    with pytest.raises(SettingsError, match=message):
        Service(settings or registry().settings(drift=True), lambda: sources(folder))


def test_models_may_come_after_the_start() -> None:
    Drift(DriftSettings(drift=True), Registry([]), CollectorRegistry()).observer.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (registry().settings(drift=True), "--drift needs a drift-baseline.npz in the folder of a model"),
        (registry().settings(drift_similarity=True), "--drift-similarity needs --drift"),
        (registry().settings(drift_embedder="encoder"), "--drift-embedder needs --drift"),
    ],
)
def test_incomplete_drift_settings_are_rejected(tmp_path: Path, settings: ServerSettings, message: str) -> None:
    check_rejected(repository(tmp_path, None), message, settings)


def test_baseline_with_another_embedder_is_rejected(tmp_path: Path) -> None:
    folder = repository(tmp_path, Baseline(sample=sample(40), embedder="mine.onnx", embedder_digest="0"))
    check_rejected(folder, r"embedder, mine\.onnx, is missing: put the graph beside it")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", r"--drift-embedder: Expected the name of a served model \(detector, encoder\), got 'missing'"),
        ("detector", "The model 'detector' makes no embeddings: Expected TENSOR for images, got OBJECT_DETECTION for"),
        ("encoder", "encoder is not the embedder that made the baseline, mine"),
    ],
)
def test_embedder_is_a_served_model_that_made_the_baseline(tmp_path: Path, name: str, message: str) -> None:
    folder = repository(tmp_path, Baseline(sample=sample(40), embedder="mine", embedder_digest="0"))
    with_encoder(folder)
    check_rejected(folder, message, registry().settings(drift=True, drift_embedder=name))


def test_model_makes_the_embeddings_that_clients_get(tmp_path: Path) -> None:
    (source,) = model_at(with_encoder(tmp_path))
    servable = load(source)
    photos = [photo.pixels for photo in WORLD.camera_images(1, 3)] + [WORLD.camera_images(1, 1)[0].pixels[:90]]
    embeddings = ModelEmbedder(source, servable.description, lambda: servable)([Image(pixels) for pixels in photos])
    for pixels, embedding in zip(photos, embeddings, strict=True):
        (record,) = predict_records(servable, "encoder", png(pixels))
        assert isinstance(record, TensorRecord)
        assert np.allclose(embedding, record.data, atol=1e-4)


def test_baseline_of_an_embedder_whose_files_changed_is_rejected(tmp_path: Path) -> None:
    (source,) = model_at(with_encoder(tmp_path))
    servable = load(source)
    digests = {ModelEmbedder(source, servable.description, lambda: servable).digest}
    write_baseline(source.folder / "drift-baseline.npz", Baseline(sample=sample(40)))
    digests.add(ModelEmbedder(source, servable.description, lambda: servable).digest)
    assert len(digests) == 1
    (source.folder / "model-settings.json").write_text('{"preprocessing": {"resize": "stretch"}}')
    assert ModelEmbedder(source, servable.description, lambda: servable).digest not in digests


def test_baseline_must_match_the_manifest_of_its_model(tmp_path: Path) -> None:
    folder = repository(tmp_path, Baseline(sample=sample(40)))
    write_manifest(folder / "detector")
    Drift(DriftSettings(drift=True), Registry(sources(folder)), CollectorRegistry()).observer.close()
    write_baseline(folder / "detector" / "drift-baseline.npz", Baseline(sample=sample(41)))
    check_rejected(folder, r"drift-baseline\.npz is not the file that ")


def test_baseline_outside_the_model_folder_is_rejected(tmp_path: Path) -> None:
    folder = repository(tmp_path, Baseline(sample=sample(40)))
    (folder / "detector" / "drift-baseline.npz").rename(folder / "elsewhere.npz")
    (folder / "detector" / "drift-baseline.npz").symlink_to("../elsewhere.npz")
    check_rejected(folder, "leads out of the model's folder")


@pytest.mark.slow
@pytest.mark.parametrize("encoder", [False, True], ids=["bundled", "model"])
def test_server_reports_similarity_and_drift(tmp_path: Path, encoder: bool) -> None:
    folder, images = repository(tmp_path, None), write_images(tmp_path / "images", WORLD.camera_images(1, 40))
    own = ("--embedder", with_encoder(folder)) if encoder else ()
    baseline = folder / "detector" / "drift-baseline.npz"
    run("baseline", images, "--out", baseline, *own)
    if encoder:
        assert "No drift was found" in run("check", baseline, images, *own, "--html", tmp_path / "drift.html")
    options = ("--model-repository", str(folder), "--drift", "--drift-similarity", "--drift-window", "30")
    own = ("--drift-embedder", "encoder") if encoder else ()
    with run_server(*options, *own) as server, httpx.Client(base_url=server.address, timeout=60) as client:
        for index, photo in enumerate(WORLD.camera_images(2, 30)):
            data = base64.b64encode(png(WORLD.blurred(photo.pixels))).decode()
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
        drifted = {test["name"]: test["drifted"] for test in window["tests"]}
        assert drifted["Kolmogorov-Smirnov"]
        assert "MMD of embeddings" in drifted
        assert server.stop() == 0
        assert any("detector has drifted: " in line for line in server.log)
