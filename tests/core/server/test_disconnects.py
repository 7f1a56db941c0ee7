"""Clients that disconnect, short timeouts, and a full queue."""

import http.client
import json
import os
import re
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from app.core.proto import message_class
from tests.support.data.chariot import image_input
from tests.support.data.images import encode_image, rectangle
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
METHOD = "/inference.GRPCInferenceService/ModelInfer"
_ELEMENT = encode_image(rectangle())
REQUEST = message_class("inference.ModelInferRequest")(
    model_name="slow",
    inputs=[{"name": "image", "datatype": "BYTES", "shape": [1]}],
    raw_input_contents=[len(_ELEMENT).to_bytes(4, "little") + _ELEMENT],
)


def make_model(folder: Path) -> Path:
    """Write a model that reports its start on one FIFO of the folder and waits for another."""
    (folder / "model").mkdir()
    (folder / "model" / "model.py").write_text(_MODEL)
    settings = {"name": "slow", "task_type": "OBJECT_DETECTION", "implementation": "model:Slow"}
    (folder / "model" / "model-settings.json").write_text(json.dumps(settings))
    os.mkfifo(folder / "began")
    os.mkfifo(folder / "gate")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("slow"))


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


def test_request_is_answered_with_504_when_its_timeout_ends(server: ServerProcess, folder: Path) -> None:
    with request_sent(server, "late", "100") as connection:
        (folder / "began").read_text()
        assert read_response(connection) == (504, {"error": "The deadline of the request has passed"})
    (folder / "gate").write_text("go on")
    assert outcome(server, "late") == "deadline_exceeded"


@pytest.mark.parametrize("timeout_ms", ["soon", "", "1e99", "nan", "-5", "-inf"])
def test_invalid_timeout_header_is_400_and_named(server: ServerProcess, timeout_ms: str) -> None:
    with request_sent(server, "refused", timeout_ms) as connection:
        status, body = read_response(connection)
    assert status == 400
    assert body["error"].startswith("x-request-timeout-ms: Expected a number of milliseconds")


def test_full_queue_is_429_with_retry_after_over_http_and_grpc(tmp_path: Path) -> None:
    folder = make_model(tmp_path)
    arguments = ("--model", str(folder / "model"), "--allow-code", "--workers", "1", "--max-waiting", "1")
    with run_server(*arguments) as server, request_sent(server, "first") as first:
        (folder / "began").read_text()
        with request_sent(server, "second") as second:
            third = {}
            while third.get("status") != 429:
                with request_sent(server, "third", "5000") as connection:
                    response = connection.getresponse()
                    third = {"status": response.status, "after": response.headers["Retry-After"]}
            assert third["after"] == "1"
            with grpc.insecure_channel(server.grpc_address) as channel, pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(METHOD)(REQUEST.SerializeToString(), timeout=30)
            rpc_error = cast("grpc.Call", caught.value)
            assert rpc_error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert ("grpc-retry-pushback-ms", "1000") in rpc_error.trailing_metadata()
            for connection in (first, second):
                (folder / "gate").write_text("go on")
                assert read_response(connection)[0] == 200
                if connection is first:
                    (folder / "began").read_text()
