"""Run third-party clients, each in its own environment, against a server that is started as users start it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.client_environments import python_with, run_checks
from tests.support.server_process import ROOT, run_server

MODELS = ROOT / "fixtures" / "models"

pytestmark = pytest.mark.slow


@pytest.fixture
def models(tmp_path: Path) -> str:
    """Return a copy of the fixture models that checks may change."""
    return str(shutil.copytree(MODELS, tmp_path / "models"))


@pytest.mark.parametrize(
    ("client", "module"),
    [
        ("tritonclient", "with_tritonclient_http"),
        ("kserve", "with_kserve"),
        ("mlserver", "with_mlserver"),
        ("openai", "with_openai"),
    ],
)
def test_client_passes_checks_over_http(models: str, client: str, module: str) -> None:
    with run_server("--model-repository", models) as server:
        run_checks(client, module, server.address, models)


@pytest.mark.parametrize(
    ("client", "module"), [("tritonclient", "with_tritonclient_grpc"), ("kserve", "with_kserve_grpc")]
)
def test_client_passes_checks_over_grpc(models: str, client: str, module: str) -> None:
    with run_server("--model-repository", models) as server:
        run_checks(client, module, server.grpc_address, models)


def test_grps_client_passes_checks(models: str) -> None:
    with run_server("--model-repository", models) as server:
        proto = ROOT / "app" / "proto" / "grps.proto"
        run_checks("grps", "with_grps", server.address, server.grpc_address, str(proto))


def test_tensorflow_serving_clients_pass_checks(models: str) -> None:
    with run_server("--model-repository", models) as server:
        http = server.tensorflow_serving_address.removeprefix("http://")
        run_checks("ovmsclient", "with_ovmsclient", http, server.tensorflow_grpc_address)
        run_checks("grps", "with_tensorflow_stubs", server.tensorflow_grpc_address)


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
