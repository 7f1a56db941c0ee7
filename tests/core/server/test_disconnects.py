"""Clients that disconnect, and invalid timeouts."""

import http.client
import json
import os
import re
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.data.chariot import image_input
from tests.support.servers.server_process import ServerProcess, run_server

pytestmark = pytest.mark.slow

_MODEL = """
from pathlib import Path

class Slow:
    def predict(self, image, parameters):
        folder = Path(__file__).parent.parent
        with (folder / "began").open("w") as began:
            began.write("x")
        with (folder / "gate").open() as gate:
            gate.read()
        return []
"""
BODY = json.dumps({"inputs": [image_input()]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a model that reports its start on one FIFO of the folder and waits for another."""
    folder = tmp_path_factory.mktemp("slow")
    (folder / "model").mkdir()
    (folder / "model" / "model.py").write_text(_MODEL)
    settings = {"name": "slow", "task_type": "OBJECT_DETECTION", "implementation": "model:Slow"}
    (folder / "model" / "model-settings.json").write_text(json.dumps(settings))
    os.mkfifo(folder / "began")
    os.mkfifo(folder / "gate")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    with run_server("--model", str(folder / "model"), "--allow-code", "--workers", "1") as running:
        yield running


@contextmanager
def request_sent(
    server: ServerProcess, name: str, timeout_ms: str | None = None
) -> Generator[http.client.HTTPConnection]:
    """Send a request and yield its connection."""
    connection = http.client.HTTPConnection(server.address.removeprefix("http://"), timeout=60)
    headers = {"Content-Type": "application/json", "X-Request-Id": name}
    if timeout_ms is not None:
        headers["X-Request-Timeout-Ms"] = timeout_ms
    with closing(connection):
        connection.request("POST", "/infer", BODY, headers)
        yield connection


def outcome(server: ServerProcess, name: str) -> str:
    """Wait for the log line of a request and return its outcome."""
    line = re.compile(rf'^{{"outcome":"(\w+)".*"request_id":"{name}"', re.MULTILINE)
    while (match := line.search("".join(list(server.log)))) is None:
        assert server.process.poll() is None
    return match[1]


def read_response(connection: http.client.HTTPConnection) -> tuple[int, dict[str, Any]]:
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def test_queued_request_is_dropped_when_its_client_disconnects(server: ServerProcess, folder: Path) -> None:
    with request_sent(server, "first") as first:
        (folder / "began").read_text()
        with request_sent(server, "second"):
            pass
        assert outcome(server, "second") == "cancelled"
        (folder / "gate").write_text("go on")
        assert read_response(first)[0] == 200
    with request_sent(server, "third") as third:
        (folder / "began").read_text()
        (folder / "gate").write_text("go on")
        assert read_response(third)[0] == 200
    assert [outcome(server, name) for name in ("first", "third")] == ["ok", "ok"]


@pytest.mark.parametrize("timeout_ms", ["soon", "", "1e99", "nan", "-5", "-inf"])
def test_invalid_timeout_header_is_400_and_named(server: ServerProcess, timeout_ms: str) -> None:
    with request_sent(server, "refused", timeout_ms) as connection:
        status, body = read_response(connection)
    assert status == 400
    assert body["error"].startswith("x-request-timeout-ms: Expected a number of milliseconds")
