"""The end of the server: told once, told twice, killed, and with requests that do not come to theirs."""

import json
import re
import signal
import socket
import sqlite3
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from app.proto import message_class
from tests.faults.gated import BODY, GRPC_METHOD, GRPC_REQUEST, TFS_BODY, Gated, answer, asked, made, method
from tests.support.polling import wait_until
from tests.support.server_process import ROOT, ServerProcess, serving

pytestmark = pytest.mark.slow

DETECTOR = ROOT / "fixtures" / "models" / "detector"
_TFS = re.compile(r"^  TensorFlow Serving +(\S+)$", re.MULTILINE)


@pytest.fixture
def gated(tmp_path: Path) -> Generator[Gated]:
    with made(tmp_path / "gated") as folder:
        yield folder


def tfs_address(server: ServerProcess) -> str:
    found = _TFS.search("".join(server.log))
    assert found
    return found[1]


def readiness(server: ServerProcess, channel: grpc.Channel) -> dict[str, bool]:
    """What every surface says of the server, or of its one model."""
    address, tfs = server.address, tfs_address(server)
    http = {
        path: httpx.get(f"{address}{path}", timeout=60).status_code == 200
        for path in (
            "/ready",
            "/v2/health/ready",
            "/v2/models/gated/ready",
            "/v1/models/gated",
            "/grps/v1/health/ready",
        )
    }
    status: Any = httpx.get(f"{tfs}/v1/models/gated", timeout=60).json()
    http["tensorflow-serving"] = status.get("model_version_status", [{}])[0].get("state") == "AVAILABLE"
    check = method(channel, "/grpc.health.v1.Health/Check")
    health = HealthCheckResponse.FromString(check(HealthCheckRequest().SerializeToString(), timeout=60))
    http["grpc.health"] = health.status == HealthCheckResponse.SERVING
    for name, request in (("ServerReady", b""), ("ModelReady", _model_ready())):
        ask = method(channel, f"/inference.GRPCInferenceService/{name}")
        said: Any = message_class(f"inference.{name}Response").FromString(ask(request, timeout=60))
        http[name] = said.ready
    return http


def _model_ready() -> bytes:
    return message_class("inference.ModelReadyRequest")(name="gated").SerializeToString()


def outcomes(server: ServerProcess) -> Sequence[str]:
    """How each request ended, as the log has it."""
    lines = [json.loads(line) for line in server.log if line.startswith("{")]
    return [line["outcome"] for line in lines if line["event"] == "inference"]


def test_readiness_is_off_first_and_what_is_in_flight_or_still_comes_is_answered(gated: Gated) -> None:
    with serving(*gated.arguments, "--workers", "1", "--drain-delay", "30") as server:
        address = server.address
        httpx.get(f"{address}/health", timeout=60)
        with (
            grpc.insecure_channel(server.grpc_address) as channel,
            asked(address) as chariot,
            asked(tfs_address(server), "/v1/models/gated:predict", TFS_BODY) as tfs,
            asked(address, "/v1/models/gated:predict", TFS_BODY) as v1,
        ):
            call = method(channel, GRPC_METHOD).future(GRPC_REQUEST, timeout=60)
            gated.wait()
            assert all(readiness(server, channel).values())
            server.process.terminate()
            wait_until(lambda: httpx.get(f"{address}/ready", timeout=60).status_code == 503)
            assert "stopping" in httpx.get(f"{address}/ready", timeout=60).json()["error"]
            assert not any(readiness(server, channel).values())
            assert httpx.get(f"{address}/health", timeout=60).status_code == 200, "it is alive all the same"
            with asked(address) as late:
                assert not call.done()
                gated.let_go(5)
                assert [answer(each)[0] for each in (chariot, tfs, v1, late)] == [200] * 4
            assert call.result(timeout=120)
        assert server.wait() == 0
        assert outcomes(server) == ["ok"] * 5
        assert any('"stopping"' in line for line in server.log)


def test_what_does_not_end_is_cut_off_on_all_ports_at_once_and_is_told(gated: Gated) -> None:
    seconds = 30
    with serving(*gated.arguments, "--workers", "1", "--drain-timeout", str(seconds)) as server:
        address = server.address
        httpx.get(f"{address}/health", timeout=60)
        with grpc.insecure_channel(server.grpc_address) as channel, asked(address) as chariot:
            gated.wait()
            call = method(channel, GRPC_METHOD).future(GRPC_REQUEST, timeout=120)
            # The next call over the same connection is answered behind it.
            method(channel, "/inference.GRPCInferenceService/ServerLive")(b"", timeout=60)
            began = time.monotonic()
            server.process.terminate()
            status, body = answer(chariot)
            assert (status, body) == (503, {"error": "The server is stopping"})
            with pytest.raises(grpc.RpcError):
                call.result(timeout=120)
        assert server.wait() == 0
        assert time.monotonic() - began < 2 * seconds, "HTTP and gRPC wait together"
        assert sorted(outcomes(server))[-1] == "model_not_ready"
        assert len(outcomes(server)) == 2, "nobody's story is lost"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_ends_it_at_once(gated: Gated, number: signal.Signals, status: int) -> None:
    with serving(*gated.arguments, "--drain-timeout", "300") as server, asked(server.address):
        gated.wait()

        def is_ended_by_another_signal() -> bool:
            server.process.send_signal(number)
            return server.process.poll() is not None

        wait_until(is_ended_by_another_signal)
        assert server.wait() == status
        assert any("told to stop again" in line for line in server.log)
        assert "Traceback" not in "".join(server.log)


_HOLDING = """
import threading

class Holding:
    def __init__(self):
        threading.Thread(target=threading.Event().wait).start()

    def predict(self, image, parameters):
        return []
"""


def test_neither_a_thread_that_never_ends_nor_a_collector_that_never_answers_holds_up_the_end(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(_HOLDING)
    settings = {"name": "holding", "task_type": "OBJECT_DETECTION", "implementation": "model:Holding"}
    (tmp_path / "model-settings.json").write_text(json.dumps(settings))
    with socket.create_server(("127.0.0.1", 0)) as collector:
        endpoint = f"http://127.0.0.1:{collector.getsockname()[1]}"
        with serving("--model", str(tmp_path), "--allow-code", "--otlp-endpoint", endpoint) as server:
            with asked(server.address) as connection:
                assert answer(connection)[0] == 200
            assert server.stop() == 0
            assert any("traces were not sent" in line for line in server.log)


def test_a_server_that_was_killed_starts_again_at_once_where_it_was(tmp_path: Path) -> None:
    store, port = tmp_path / "kept.db", "0"
    arguments = ("--model", str(DETECTOR), "--record", str(store), "--no-page")
    for times in (1, 2):
        with serving(*arguments, "--port", port) as server, httpx.Client(base_url=server.address, timeout=60) as client:
            assert client.post("/infer", content=BODY, headers={"content-type": "application/json"}).status_code == 200
            port = server.address.rpartition(":")[2]
            server.process.kill()
            assert server.wait() == -signal.SIGKILL
        with sqlite3.connect(store) as connection:
            assert connection.execute("SELECT count(*) FROM inferences").fetchone() == (times,)
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
