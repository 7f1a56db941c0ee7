"""Run third-party clients, each in its own environment, against a server that is started as users start it."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest

from tests.support.servers.apps import PYTHON_MODELS
from tests.support.servers.client_environments import python_with, run_checks
from tests.support.servers.server_process import ROOT, ServerProcess, run_server

MODELS = ROOT / "fixtures" / "models"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the fixture models, because a test replaces one, and add two that make vectors of texts and of images."""
    folder = shutil.copytree(MODELS, tmp_path_factory.mktemp("clients") / "models")
    shutil.copytree(PYTHON_MODELS / "embedder", folder / "embedder")
    shutil.copytree(MODELS / "classifier", folder / "image-embedder")
    settings = {"task_type": "TENSOR", "preprocessing": {"size": [64, 64]}}
    (folder / "image-embedder" / "model-settings.json").write_text(json.dumps(settings))
    return folder


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


def test_openai_clients_pass_checks(server: ServerProcess) -> None:
    run_checks("openai", "with_openai", server.address)


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
