"""Servers of other projects fail only the checks on which they are known to differ."""

import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from app.plugins.conformance.options import ConformanceOptions, open_runner
from app.plugins.conformance.runner import CheckRunner
from tests.benchmarks.serving.processes import run_server
from tests.plugins.conformance.engines import failed_checks
from tests.support.servers.client_environments import python_with
from tests.support.servers.ports import reserve_ports

pytestmark = pytest.mark.slow

FOREIGN = Path(__file__).with_name("foreign")


@pytest.fixture(scope="module")
def mlserver(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[int, int]]:
    python = python_with("mlserver")
    folder = tmp_path_factory.mktemp("mlserver")
    shutil.copytree(FOREIGN / "mlserver", folder, dirs_exist_ok=True)
    http, grpc, metrics = reserve_ports(3)
    settings = {
        "MLSERVER_HOST": "127.0.0.1",
        "MLSERVER_HTTP_PORT": str(http),
        "MLSERVER_GRPC_PORT": str(grpc),
        "MLSERVER_METRICS_PORT": str(metrics),
        "MLSERVER_PARALLEL_WORKERS": "0",
        "PYTHONPATH": str(folder),
    }
    url = f"http://127.0.0.1:{http}/v2/health/live"
    with run_server([str(python.with_name("mlserver")), "start", str(folder)], {}, url, settings, folder):
        yield http, grpc


@pytest.fixture(scope="module")
def kserve() -> Generator[tuple[int, int]]:
    python = python_with("kserve")
    http, grpc = reserve_ports(2)
    command = [str(python), str(FOREIGN / "kserve_half.py"), str(http), str(grpc)]
    with run_server(command, {}, f"http://127.0.0.1:{http}/"):
        yield http, grpc


def failures_of(protocol: str, url: str) -> list[str]:
    with open_runner(url, ConformanceOptions(protocol=protocol, model="half")) as runner:
        assert isinstance(runner, CheckRunner)
        return list(failed_checks(runner.report()))


def test_mlserver_fails_only_known_checks(mlserver: tuple[int, int]) -> None:
    http, grpc = mlserver
    assert failures_of("v2", f"http://127.0.0.1:{http}") == ["V2-004", "V2-S09", "V2-S11"]
    expected = ["S09", "S10", "S11", "021", "024", "025"]
    assert failures_of("v2-grpc", f"grpc://127.0.0.1:{grpc}") == [f"V2G-{number}" for number in expected]


def test_kserve_fails_only_known_checks(kserve: tuple[int, int]) -> None:
    http, grpc = kserve
    assert failures_of("v2", f"http://127.0.0.1:{http}") == ["V2-S11"]
    assert failures_of("v1", f"http://127.0.0.1:{http}") == ["V1-011"]
    assert failures_of("v2-grpc", f"grpc://127.0.0.1:{grpc}") == ["V2G-S09", "V2G-S11", "V2G-021"]
