"""``charioteer conform`` against a real server, and its errors."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.plugins.conformance.command import conform
from app.plugins.conformance.options import ConformanceOptions
from tests.plugins.conformance.tiny_engine import tiny_engine
from tests.support.command_line import charioteer
from tests.support.servers.server_process import ROOT, ServerProcess, run_server

run = partial(charioteer, "conform")


@pytest.fixture(scope="module")
def server(small_models: Path) -> Iterator[ServerProcess]:
    with run_server("--model-repository", str(small_models)) as server:
        yield server


@pytest.mark.slow
def test_real_server_conforms(server: ServerProcess, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    image = ROOT / "fixtures" / "images" / "scene.jpg"
    result = run(server.address, "--model", "detector", "--image", image, "--all", "--json", file)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "The engine conforms" in result.stdout
    assert "storage: works" in result.stdout
    assert "CV2K-001" in result.stdout
    assert json.loads(file.read_bytes())["task_type"] == "OBJECT_DETECTION"


@pytest.mark.slow
def test_real_server_conforms_over_grpc(server: ServerProcess) -> None:
    result = run(f"grpc://{server.grpc_address}", "--protocol", "v2-grpc", "--model", "detector")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "MUST: 19 passed, 0 failed, 0 not tested" in result.stdout
    unsupported = run(server.address.replace("http", "grpc"), "--protocol", "v2-grpc", "--timeout", "1")
    assert unsupported.returncode == 2
    assert "Nothing speaks gRPC there within 1 seconds" in unsupported.stderr


def usage_error(capsys: pytest.CaptureFixture[str], **arguments: Any) -> tuple[str, str]:
    """Return the output of a command that exits with status 2, and its error in one line."""
    with pytest.raises(SystemExit) as raised:
        conform(**arguments)
    assert raised.value.code == 2
    printed = capsys.readouterr()
    return printed.out, " ".join(printed.err.split())


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["kserve-v2", "kserve-v2-grpc"])
def test_server_with_several_models_needs_a_choice(
    server: ServerProcess, capsys: pytest.CaptureFixture[str], protocol: str
) -> None:
    address = server.grpc_address if protocol.endswith("grpc") else server.address.removeprefix("http://")
    output, error = usage_error(capsys, url=address, options=ConformanceOptions(protocol=protocol))
    assert output == ""
    assert "choose one with --model, or --all-models: classifier, detector, greeter," in error


@pytest.mark.slow
def test_every_model_of_a_server_conforms(
    server: ServerProcess, small_models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conform(server.address, options=ConformanceOptions(protocol="v1"), all_models=True)
    assert capsys.readouterr().out.count("The engine conforms") == len(list(small_models.iterdir()))


@pytest.mark.slow
def test_protocol_that_is_not_for_the_model_is_an_error(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    _, error = usage_error(capsys, url=server.address, options=ConformanceOptions(model="half_plus_two"))
    assert "--protocol v2" in error


def test_engine_that_violates_a_must_exits_with_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    with tiny_engine(faulty=True) as url, pytest.raises(SystemExit) as raised:
        conform(url, options=ConformanceOptions(protocol="v1"))
    assert raised.value.code == 1
    assert "clients: would not work: V1-006 failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "the URL of a server"),
        ({"url": "http://127.0.0.1:1"}, "127.0.0.1:1"),
        ({"url": "http://x", "listing": True, "json": Path("a")}, "the URL, --json: no effect with --list"),
        ({"url": "http://127.0.0.1:1", "json": Path("nowhere/report.json")}, "there is no folder"),
    ],
)
def test_missing_or_unused_argument_and_unreachable_engine_are_errors(
    capsys: pytest.CaptureFixture[str], arguments: dict[str, Any], message: str
) -> None:
    assert message in usage_error(capsys, **arguments)[1]


def test_checks_are_listed_without_an_engine(capsys: pytest.CaptureFixture[str]) -> None:
    conform(listing=True, options=ConformanceOptions(protocol="v1"))
    assert "V1-001" in capsys.readouterr().out
