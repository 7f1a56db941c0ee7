"""Clients that others wrote, each in an environment of its own, against a server as a user starts it."""

import shutil
from pathlib import Path

import pytest

from tests.support.environments import run_checks
from tests.support.server_process import ROOT, serving

MODELS = ROOT / "fixtures" / "models"

pytestmark = pytest.mark.slow


@pytest.fixture
def models(tmp_path: Path) -> str:
    """The fixture models, to be changed at will."""
    return str(shutil.copytree(MODELS, tmp_path / "models"))


@pytest.mark.parametrize(
    ("client", "module"),
    [("tritonclient", "with_tritonclient_http"), ("kserve", "with_kserve"), ("mlserver", "with_mlserver")],
)
def test_over_http(models: str, client: str, module: str) -> None:
    with serving("--model-repository", models) as server:
        run_checks(client, module, server.address, models)


@pytest.mark.parametrize(
    ("client", "module"), [("tritonclient", "with_tritonclient_grpc"), ("kserve", "with_kserve_grpc")]
)
def test_over_grpc(models: str, client: str, module: str) -> None:
    with serving("--model-repository", models) as server:
        run_checks(client, module, server.grpc_address, models)


def test_grps(models: str) -> None:
    with serving("--model-repository", models) as server:
        proto = ROOT / "app" / "proto" / "grps.proto"
        run_checks("grps", "with_grps", server.address, server.grpc_address, str(proto))
