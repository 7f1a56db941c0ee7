"""Clients that others wrote, each in an environment of its own, against a server as a user starts it."""

import shutil
import socket
from pathlib import Path

import pytest

from tests.clients.environments import run_checks
from tests.server_process import ROOT, serving

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
    port = free_port()
    with serving("--model-repository", models, "--grpc-port", str(port)) as server:
        assert server.address
        run_checks(client, module, f"127.0.0.1:{port}", models)


def test_grps(models: str) -> None:
    port = free_port()
    with serving("--model-repository", models, "--grpc-port", str(port)) as server:
        proto = ROOT / "proto" / "app" / "protocols" / "pb" / "grps.proto"
        run_checks("grps", "with_grps", server.address, f"127.0.0.1:{port}", str(proto))


def free_port() -> int:
    """One that nothing listens on at the moment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
