"""Clients that leave, or give a request too little time, and what the server still does for them."""

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

from app.proto import message_class
from tests.support.chariot import image_input
from tests.support.pictures import encoded, rectangle
from tests.support.server_process import ServerProcess, serving

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
_ELEMENT = encoded(rectangle())
REQUEST = message_class("inference.ModelInferRequest")(
    model_name="slow",
    inputs=[{"name": "image", "datatype": "BYTES", "shape": [1]}],
    raw_input_contents=[len(_ELEMENT).to_bytes(4, "little") + _ELEMENT],
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model that says over one pipe that a call has begun, and ends it when another is opened."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.py").write_text(_MODEL)
    settings = {"name": "slow", "task_type": "OBJECT_DETECTION", "implementation": "model:Slow"}
    (tmp_path / "model" / "model-settings.json").write_text(json.dumps(settings))
    os.mkfifo(tmp_path / "began")
    os.mkfifo(tmp_path / "gate")
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[ServerProcess]:
    with serving("--model", str(folder / "model"), "--allow-code", "--workers", "1") as running:
        yield running


@contextmanager
def asked(server: ServerProcess, name: str, timeout_ms: str | None = None) -> Generator[http.client.HTTPConnection]:
    """A connection over which a request has gone."""
    connection = http.client.HTTPConnection(server.address.removeprefix("http://"), timeout=60)
    headers = {"Content-Type": "application/json", "X-Request-Id": name}
    if timeout_ms is not None:
        headers["X-Request-Timeout-Ms"] = timeout_ms
    with closing(connection):
        connection.request("POST", "/infer", BODY, headers)
        yield connection


def outcome(server: ServerProcess, name: str) -> str:
    """What the log says of a request; the log is read until it says so."""
    line = re.compile(rf'^{{"outcome":"(\w+)".*"request_id":"{name}"', re.MULTILINE)
    while (found := line.search("".join(list(server.log)))) is None:
        assert server.process.poll() is None
    return found[1]


def answer(connection: http.client.HTTPConnection) -> tuple[int, dict[str, Any]]:
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def test_a_request_that_waits_for_the_model_is_dropped_with_its_sender(server: ServerProcess, folder: Path) -> None:
    with asked(server, "first") as first:
        (folder / "began").read_text()
        with asked(server, "second"):
            pass
        assert outcome(server, "second") == "cancelled"
        (folder / "gate").write_text("go on")
        assert answer(first)[0] == 200
    with asked(server, "third") as third:
        (folder / "began").read_text()
        (folder / "gate").write_text("go on")
        assert answer(third)[0] == 200
    assert [outcome(server, name) for name in ("first", "third")] == ["ok", "ok"]


def test_a_request_is_answered_when_its_time_is_over(server: ServerProcess, folder: Path) -> None:
    with asked(server, "late", "100") as late:
        (folder / "began").read_text()
        assert answer(late) == (504, {"error": "The deadline of the request has passed"})
    (folder / "gate").write_text("go on")
    assert outcome(server, "late") == "deadline_exceeded"


@pytest.mark.parametrize("given", ["soon", "", "1e99", "nan"])
def test_a_time_that_is_none_is_refused_with_the_header_named(server: ServerProcess, given: str) -> None:
    with asked(server, "refused", given) as connection:
        status, body = answer(connection)
    assert status == 400
    assert body["error"].startswith("x-request-timeout-ms: Expected a number of milliseconds")


def test_whoever_finds_no_place_is_told_when_to_come_back(folder: Path) -> None:
    arguments = ("--model", str(folder / "model"), "--allow-code", "--workers", "1", "--max-waiting", "1")
    with serving(*arguments) as server, asked(server, "first") as first:
        (folder / "began").read_text()
        with asked(server, "second") as second:
            third = {}
            while third.get("status") != 429:
                with asked(server, "third", "5000") as connection:
                    response = connection.getresponse()
                    third = {"status": response.status, "after": response.headers["Retry-After"]}
            assert third["after"] == "1"
            with grpc.insecure_channel(server.grpc_address) as channel, pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(METHOD)(REQUEST.SerializeToString(), timeout=30)
            failure = cast("grpc.Call", refused.value)
            assert failure.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert ("grpc-retry-pushback-ms", "1000") in failure.trailing_metadata()
            for connection in (first, second):
                (folder / "gate").write_text("go on")
                assert answer(connection)[0] == 200
                if connection is first:
                    (folder / "began").read_text()
