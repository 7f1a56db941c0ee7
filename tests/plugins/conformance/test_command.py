"""``charioteer conform`` against a real server."""

import json
import shutil
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path

import pytest

from tests.support.command_line import charioteer
from tests.support.servers.server_process import ROOT, run_server

conform = partial(charioteer, "conform")


@pytest.mark.slow
def test_real_server_conforms(tmp_path: Path) -> None:
    files = {name: tmp_path / f"report.{name}" for name in ("json", "junit", "html")}
    options = [option for name, path in files.items() for option in (f"--{name}", path)]
    with run_server("--model", "fixtures/models/detector") as server:
        image = ROOT / "fixtures" / "images" / "scene.jpg"
        result = conform(server.address, "--image", image, "--all", *options)
        limited = conform(
            server.address, "--model", "detector", "--protocol", "v2", "--header", "x-a: b", "--max-requests", "3"
        )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "The engine conforms" in result.stdout
    assert "storage: works" in result.stdout
    assert "CV2K-001" in result.stdout
    assert json.loads(files["json"].read_bytes())["task_type"] == "OBJECT_DETECTION"
    assert ET.parse(files["junit"]).getroot().get("failures") == "0"
    assert files["html"].read_text().startswith("<!doctype html>")
    assert "not tested" in limited.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("http://127.0.0.1:1",), "127.0.0.1:1"),
        (("engine.local",), "http://"),
        ((), "the URL of a server"),
        (("http://127.0.0.1:1", "--protocol", "soap"), "chariot-v2-kserve"),
        (("http://127.0.0.1:1", "--protocol", "v2-grpc"), "grpc://"),
        (("--list", "http://x", "--json", "a.json"), "the URL, --json: no effect with --list"),
        (("--list", "--protocol", "v2"), "--protocol: no effect with --list alone; add --all"),
        (("--list", "--all", "--protocol", "soap"), "chariot-v2-kserve"),
        (("http://127.0.0.1:1", "--header", "secret"), "Name: value"),
        (("http://127.0.0.1:1", "--image", "README.md"), "Expected an encoded image"),
        (("http://127.0.0.1:1", "--request", "README.md"), "--request"),
    ],
)
def test_invalid_arguments_exit_with_status_2(arguments: tuple[str, ...], message: str) -> None:
    result = conform(*arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_server_with_several_models_needs_a_choice(tmp_path: Path) -> None:
    with run_server("--model-repository", "fixtures/models") as server:
        address = server.address.removeprefix("http://")
        refused = conform(address, "--protocol", "kserve-v2")
        over_grpc = conform(server.grpc_address, "--protocol", "kserve-v2-grpc")
    for result in (refused, over_grpc):
        assert result.returncode == 2
        assert result.stdout == ""
        assert "choose one with --model, or --all-models: classifier, detector, greeter," in result.stderr


@pytest.mark.slow
def test_all_models_are_checked(tmp_path: Path) -> None:
    for name in ("half_plus_two", "half_plus_three"):
        shutil.copytree(ROOT / "fixtures" / "models" / name, tmp_path / "models" / name)
    with run_server("--model-repository", str(tmp_path / "models")) as server:
        result = conform(server.address, "--protocol", "v1", "--all-models", "--json", tmp_path / "report.json")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("The engine conforms") == 2
    reports = [json.loads((tmp_path / f"report.half_plus_{name}.json").read_bytes()) for name in ("two", "three")]
    assert [report["model"] for report in reports] == ["half_plus_two", "half_plus_three"]


@pytest.mark.slow
def test_engine_of_another_protocol_does_not_conform() -> None:
    with run_server("--model", "fixtures/models/detector", "--chariot-protocol", "chariot-v2") as server:
        result = conform(server.address)
    assert result.returncode == 1
    assert "storage: would not work: CV2K-001 failed" in result.stdout


@pytest.mark.slow
def test_real_server_conforms_over_grpc() -> None:
    with run_server("--model", "fixtures/models/detector") as server:
        unsupported = conform(server.address.replace("http", "grpc"), "--protocol", "grps-grpc", "--timeout", "1")
        address = f"grpc://{server.grpc_address}"
        results = [conform(address, "--protocol", name, "--model", "detector") for name in ("v2-grpc", "grps-grpc")]
    assert [result.returncode for result in results] == [0, 0], [result.stdout + result.stderr for result in results]
    assert "MUST: 18 passed, 0 failed, 0 not tested" in results[0].stdout
    assert "MUST: 14 passed, 0 failed, 0 not tested" in results[1].stdout
    assert unsupported.returncode == 2
    assert "Nothing speaks gRPC there within 1 seconds" in unsupported.stderr


def test_checks_are_listed_without_an_engine() -> None:
    result = conform("--list", "--all", "--protocol", "grps")
    assert result.returncode == 0
    assert "GRPS-S01" in result.stdout


def test_unwritable_report_is_refused_before_any_request(tmp_path: Path) -> None:
    result = conform("http://127.0.0.1:1", "--protocol", "v1", "--json", tmp_path / "nowhere" / "report.json")
    assert result.returncode == 2
    assert "there is no folder" in result.stderr
    assert "Traceback" not in result.stderr
