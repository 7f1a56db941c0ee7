"""Check streamed responses when the server stops, the client disconnects, or the model fails."""

import http.client
import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.faults.gated import open_request, outcomes
from tests.support.models.model_folders import write_model
from tests.support.polling import wait_until
from tests.support.servers.server_process import ServerProcess, run_server

pytestmark = pytest.mark.slow

_MODEL = """
import os

class Model:
    def predict(self, text):
        yield "one "
        gate = os.open({gate!r}, os.O_RDONLY)
        os.read(gate, 1)
        os.close(gate)
        if "stop" in text:
            raise SystemExit(3)
        yield "two"
"""


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Generator[int]:
    os.mkfifo(pipe := tmp_path_factory.getbasetemp() / "gate")
    descriptor = os.open(pipe, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, gate: int) -> Generator[ServerProcess]:
    del gate
    code = _MODEL.format(gate=str(tmp_path_factory.getbasetemp() / "gate"))
    folder = write_model(tmp_path_factory.mktemp("speaker"), code, name="speaker", task_type="TEXT_GENERATION")
    with run_server("--model", str(folder), "--allow-code", "--workers", "1", "--drain-timeout", "20") as process:
        yield process


@contextmanager
def open_stream(server: ServerProcess, text: str, name: str) -> Generator[http.client.HTTPResponse]:
    """Yield a streamed response after its first chunk."""
    body = json.dumps({"messages": [{"role": "user", "content": text}], "stream": True})
    path = "/openai/v1/chat/completions"
    with open_request(server.address, path, body, **{"X-Request-ID": name}) as connection:
        response = connection.getresponse()
        assert response.status == 200
        assert text_of(next_event(response)) == ""
        assert text_of(next_event(response)) == "one "
        yield response


def next_event(response: http.client.HTTPResponse) -> Any:
    """Return the next server-sent event."""
    while line := response.readline():
        if line.startswith(b"data:") and b"[DONE]" not in line:
            return json.loads(line.removeprefix(b"data:"))
    return None


def text_of(event: Any) -> str:
    return event["choices"][0]["delta"].get("content", "")


def test_disconnect_and_model_failure_do_not_affect_later_streams(server: ServerProcess, gate: int) -> None:
    with open_stream(server, "go on", "left"):
        pass
    os.write(gate, b"g")
    wait_until(lambda: bool(outcomes(server.log, "left")))
    with open_stream(server, "stop", "failed") as response:
        os.write(gate, b"g")
        error_event = next_event(response)
        assert "SystemExit" in error_event["error"]["message"]
        assert next_event(response) is None
    wait_until(lambda: outcomes(server.log, "failed") == ["model_failed"])
    with open_stream(server, "go on", "after") as response:
        os.write(gate, b"g")
        assert text_of(next_event(response)) == "two"
    assert httpx.get(f"{server.address}/ready", timeout=60).status_code == 200


# The last test here: it stops the server.
def test_stream_is_completed_while_server_stops(server: ServerProcess, gate: int) -> None:
    with open_stream(server, "go on", "drained") as response:
        server.process.terminate()
        wait_until(lambda: any('"stopping"' in line for line in server.log))
        os.write(gate, b"g")
        assert text_of(next_event(response)) == "two"
        assert next_event(response)["choices"][0]["finish_reason"] == "stop"
        assert next_event(response) is None
    assert server.wait() == 0
    assert outcomes(server.log, "drained") == ["ok"]
