"""``charioteer conform`` against a real server, as its user runs it."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.app.conformance.tiny_engine import tiny_engine
from tests.support.server_process import ROOT, serving

pytestmark = pytest.mark.slow


def conform(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app", "conform", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_a_real_server_conforms(tmp_path: Path) -> None:
    files = {name: tmp_path / f"report.{name}" for name in ("json", "junit", "html")}
    options = [each for name, path in files.items() for each in (f"--{name}", path)]
    with serving("--model", "fixtures/models/detector") as server:
        image = ROOT / "fixtures" / "images" / "scene.jpg"
        done = conform(server.address, "--image", image, "--all", *options)
        refused = conform(
            server.address, "--model", "detector", "--protocol", "v2", "--header", "x-a: b", "--max-requests", "3"
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The engine conforms" in done.stdout
    assert "storage: works" in done.stdout
    assert "CV2K-001" in done.stdout
    assert json.loads(files["json"].read_bytes())["task_type"] == "OBJECT_DETECTION"
    assert ET.parse(files["junit"]).getroot().get("failures") == "0"
    assert files["html"].read_text().startswith("<!doctype html>")
    assert "not tested" in refused.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("http://127.0.0.1:1",), "127.0.0.1:1"),
        (("engine.local",), "http://"),
        ((), "the URL of a server"),
        (("http://127.0.0.1:1", "--protocol", "soap"), "chariot-v2-kserve"),
        (("http://127.0.0.1:1", "--protocol", "v2-grpc"), "grpc://"),
        (("--list", "--all", "--protocol", "soap"), "chariot-v2-kserve"),
        (("http://127.0.0.1:1", "--header", "secret"), "Name: value"),
        (("http://127.0.0.1:1", "--image", "README.md"), "Expected an encoded image"),
        (("http://127.0.0.1:1", "--request", "README.md"), "--request"),
    ],
)
def test_what_cannot_be_asked_is_status_2(arguments: tuple[str, ...], said: str) -> None:
    done = conform(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_engine_of_another_protocol_does_not_conform() -> None:
    with serving("--model", "fixtures/models/detector", "--chariot-protocol", "chariot-v2") as server:
        done = conform(server.address)
    assert done.returncode == 1
    assert "storage: would not work: CV2K-001 failed" in done.stdout


def test_a_real_server_conforms_over_grpc() -> None:
    with serving("--model", "fixtures/models/detector") as server:
        other = conform(server.address.replace("http", "grpc"), "--protocol", "grps-grpc", "--timeout", "1")
        address = f"grpc://{server.grpc_address}"
        done = [conform(address, "--protocol", name, "--model", "detector") for name in ("v2-grpc", "grps-grpc")]
    assert [each.returncode for each in done] == [0, 0], [each.stdout + each.stderr for each in done]
    assert "MUST: 18 passed, 0 failed, 0 not tested" in done[0].stdout
    assert "MUST: 14 passed, 0 failed, 0 not tested" in done[1].stdout
    assert other.returncode == 2
    assert "Nothing speaks gRPC there within 1 seconds" in other.stderr


def test_clauses_are_listed_without_an_engine() -> None:
    done = conform("--list", "--all", "--protocol", "grps")
    assert done.returncode == 0
    assert "GRPS-001" in done.stdout


def test_a_report_that_cannot_be_written_is_status_2(tmp_path: Path) -> None:
    with tiny_engine() as url:
        done = conform(url, "--protocol", "v1", "--json", tmp_path / "nowhere" / "report.json")
    assert done.returncode == 2
    assert "cannot write the report" in done.stderr
    assert "Traceback" not in done.stderr
