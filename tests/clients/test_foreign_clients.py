"""Run third-party clients, each in its own environment, against a server that is started as users start it."""

import shutil
from pathlib import Path

import pytest

from tests.support.client_environments import run_checks
from tests.support.server_process import ROOT, run_server

MODELS = ROOT / "fixtures" / "models"

pytestmark = pytest.mark.slow


@pytest.fixture
def models(tmp_path: Path) -> str:
    """Return a copy of the fixture models that checks may change."""
    return str(shutil.copytree(MODELS, tmp_path / "models"))


@pytest.mark.parametrize(
    ("client", "module"),
    [("tritonclient", "with_tritonclient_http"), ("kserve", "with_kserve"), ("mlserver", "with_mlserver")],
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
