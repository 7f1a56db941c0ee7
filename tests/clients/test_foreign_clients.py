"""Run third-party clients, each in its own environment, against a server that is started as users start it."""

import ast
import json
import os
import re
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path

import httpx
import onnxruntime
import pytest

from tests.plugins.layouts.test_detr import write_scaling
from tests.support.models.tiny_language import talker
from tests.support.servers.apps import PYTHON_MODELS
from tests.support.servers.client_environments import python_with, run_checks
from tests.support.servers.server_process import ROOT, ServerProcess, run_server
from tests.test_coming_from import example

MODELS = ROOT / "fixtures" / "models"

RAPIDOCR = """
from types import SimpleNamespace

import numpy as np

class RapidOCR:
    def __call__(self, pixels):
        height, width, _ = pixels.shape
        boxes = np.array([[[0, 0], [width, 0], [width, height], [0, height]]], np.float32)
        return SimpleNamespace(boxes=boxes, txts=(f"{width}x{height} Å",), scores=(0.75,))
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the fixture models, because a test replaces one, and add others for single clients."""
    folder = shutil.copytree(MODELS, tmp_path_factory.mktemp("clients") / "models")
    shutil.copytree(PYTHON_MODELS / "embedder", folder / "embedder")
    shutil.copytree(MODELS / "classifier", folder / "image-embedder")
    settings = {"task_type": "TENSOR", "preprocessing": {"size": [64, 64]}}
    (folder / "image-embedder" / "model-settings.json").write_text(json.dumps(settings))
    write_docling_models(folder)
    return folder


def write_docling_models(folder: Path) -> None:
    """Write what docling asks: a layout and a classifier, as exported beside their configurations, and a class."""
    shutil.copytree(MODELS / "classifier", folder / "figures")
    session = onnxruntime.InferenceSession(folder / "figures" / "model.onnx")
    labels = ast.literal_eval(session.get_modelmeta().custom_metadata_map["names"])
    (folder / "layout").mkdir()
    write_scaling(folder / "layout")
    for name, model_type, class_name, side, names in (
        ("figures", "vit", "ViTForImageClassification", 64, labels),
        ("layout", "rt_detr", "RTDetrForObjectDetection", 64, {0: "cat", 1: "dog"}),
    ):
        config = {"model_type": model_type, "architectures": [class_name], "id2label": names}
        (folder / name / "config.json").write_text(json.dumps(config))
        processor = "ViTImageProcessor" if name == "figures" else "RTDetrImageProcessor"
        options = {"image_processor_type": processor, "size": {"height": side, "width": side}, "do_normalize": False}
        (folder / name / "preprocessor_config.json").write_text(json.dumps(options))
    (folder / "ocr").mkdir()
    (folder / "ocr" / "rapidocr.py").write_text(RAPIDOCR)
    for name in ("model.py", "model-settings.json"):
        (folder / "ocr" / name).write_text(example("Clients that preprocess themselves", name))


@pytest.fixture(scope="module")
def server(models: Path) -> Generator[ServerProcess]:
    with run_server("--model-repository", str(models), "--allow-code", "--label-studio") as process:
        yield process


def test_kserve_passes_checks(server: ServerProcess) -> None:
    run_checks("kserve", "with_kserve", server.address, server.grpc_address)


def test_mlserver_passes_checks(server: ServerProcess) -> None:
    run_checks("mlserver", "with_mlserver", server.address)


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_tritonclient_passes_checks_and_exchanges_a_model(server: ServerProcess, models: Path, transport: str) -> None:
    address = server.address if transport == "http" else server.grpc_address
    try:
        run_checks("tritonclient", "with_tritonclient", transport, address, str(models))
    finally:
        # The other clients expect the original model.
        shutil.copy(MODELS / "half_plus_two" / "model.onnx", models / "half_plus_two")
        loaded = httpx.post(f"{server.address}/v2/repository/models/half_plus_two/load", timeout=60)
    assert loaded.status_code == 200


def test_docling_reads_layouts_figures_and_texts(server: ServerProcess, models: Path) -> None:
    run_checks("docling", "with_docling", server.address, server.grpc_address, str(models))


def test_openai_clients_pass_checks(server: ServerProcess) -> None:
    run_checks("openai", "with_openai", server.address)


@pytest.mark.parametrize("client", ["structured", "llama_index"])
def test_clients_get_structured_answers(client: str, tmp_path: Path) -> None:
    talker(tmp_path / "talker")
    with run_server("--model-repository", str(tmp_path), "--max-new-tokens", "2048") as process:
        run_checks(client, f"with_{client}", process.address)


def test_label_studio_converts_predictions_back_to_the_records(server: ServerProcess) -> None:
    run_checks("label_studio", "with_label_studio", server.address)


def test_ovmsclient_passes_checks(server: ServerProcess) -> None:
    http = server.tensorflow_serving_address.removeprefix("http://")
    run_checks("ovmsclient", "with_ovmsclient", http, server.tensorflow_grpc_address)


def test_grpcurl_session_of_the_page_prints_its_answers(tmp_path: Path) -> None:
    shutil.copytree(MODELS / "half_plus_three", tmp_path / "saved_model_half_plus_three" / "123")
    page = (ROOT / "docs" / "tensorflow_serving.md").read_text()
    session = re.findall(r"```sh\n(grpcurl .*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    assert len(session) == 5
    path = f"{python_with('grpcurl').parent}:{os.environ['PATH']}"
    with run_server("--model-repository", str(tmp_path)) as server:
        for script, expected in session:
            script = script.replace("localhost:8500", server.tensorflow_grpc_address)
            command = ["bash", "-c", f"{{ {script} }} 2>&1"]
            completed = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True)
            assert "".join(completed.stdout.split()) == "".join(expected.split())
