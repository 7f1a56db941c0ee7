"""Stop the server: with one signal, with two, with SIGKILL, and with requests that do not finish."""

import signal
import socket
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from tests.faults.gated import (
    GRPC_METHOD,
    GRPC_REQUEST,
    TFS_BODY,
    Gated,
    open_request,
    outcomes,
    read_response,
    unary_method,
)
from tests.support.models.model_folders import write_model
from tests.support.polling import wait_until
from tests.support.servers.server_process import ServerProcess, run_server

pytestmark = pytest.mark.slow


def readiness(server: ServerProcess, client: httpx.Client, channel: grpc.Channel) -> list[bool]:
    """Return what one readiness endpoint of each port reports; `test_readiness` compares all endpoints."""
    ready = client.get(f"{server.address}/ready").status_code == 200
    state: Any = client.get(f"{server.tensorflow_serving_address}/v1/models/gated").json()
    available = state.get("model_version_status", [{}])[0].get("state") == "AVAILABLE"
    check = unary_method(channel, "/grpc.health.v1.Health/Check")
    health = HealthCheckResponse.FromString(check(HealthCheckRequest().SerializeToString(), timeout=60))
    return [ready, available, health.status == HealthCheckResponse.SERVING]


def test_stopping_server_is_not_ready_but_answers_requests(gated: Gated) -> None:
    with run_server(*gated.arguments, "--workers", "1", "--drain-delay", "6") as server:
        address = server.address
        httpx.get(f"{address}/health", timeout=60)
        with (
            # Each request opens a connection, but only the client reads the certificates of authorities, which is slow.
            httpx.Client(timeout=60, headers={"Connection": "close"}) as client,
            grpc.insecure_channel(server.grpc_address) as channel,
            open_request(address) as chariot,
            open_request(server.tensorflow_serving_address, "/v1/models/gated:predict", TFS_BODY) as tfs,
            open_request(address, "/v1/models/gated:predict", TFS_BODY) as v1,
        ):
            call = unary_method(channel, GRPC_METHOD).future(GRPC_REQUEST, timeout=60)
            gated.wait_for_call()
            assert all(readiness(server, client, channel))
            server.process.terminate()
            wait_until(lambda: client.get(f"{address}/ready").status_code == 503)
            assert "stopping" in client.get(f"{address}/ready").json()["error"]
            assert not any(readiness(server, client, channel))
            assert client.get(f"{address}/health").status_code == 200, "still alive"
            with open_request(address) as late:
                assert not call.done()
                gated.release(5)
                assert [read_response(connection)[0] for connection in (chariot, tfs, v1, late)] == [200] * 4
            assert call.result(timeout=120)
        assert server.wait() == 0
        assert outcomes(server.log) == ["ok"] * 5
        assert any('"stopping"' in line for line in server.log)


def test_drain_timeout_ends_and_logs_requests_of_all_ports(gated: Gated) -> None:
    seconds = 6
    with run_server(*gated.arguments, "--workers", "1", "--drain-timeout", str(seconds)) as server:
        address = server.address
        httpx.get(f"{address}/health", timeout=60)
        with grpc.insecure_channel(server.grpc_address) as channel, open_request(address) as chariot:
            gated.wait_for_call()
            call = unary_method(channel, GRPC_METHOD).future(GRPC_REQUEST, timeout=120)
            # A response to a later call on the same connection proves that the first one has arrived.
            unary_method(channel, "/inference.GRPCInferenceService/ServerLive")(b"", timeout=60)
            began = time.monotonic()
            server.process.terminate()
            status, body = read_response(chariot)
            assert (status, body) == (503, {"error": "The server is stopping"})
            with pytest.raises(grpc.RpcError, match="The server is stopping"):
                call.result(timeout=120)
            assert call.code() == grpc.StatusCode.UNAVAILABLE
        assert server.wait() == 0
        assert time.monotonic() - began < 2 * seconds, "HTTP and gRPC share one drain timeout"
        assert outcomes(server.log) == ["model_not_ready"] * 2, "every request is logged"


@pytest.fixture
def hangup_ends() -> Generator[None]:
    """Let servers get SIGHUP, which is ignored if the tests run under nohup."""
    inherited = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, inherited)


@pytest.mark.usefixtures("hangup_ends")
def test_hangup_drains_and_user_signals_are_ignored(gated: Gated) -> None:
    with run_server(*gated.arguments, "--workers", "1") as server, open_request(server.address) as first:
        gated.wait_for_call()
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            server.process.send_signal(number)
        with open_request(server.address) as second:
            gated.release()
            assert read_response(first)[0] == 200
            gated.wait_for_call()
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: any('"stopping"' in line for line in server.log))
            gated.release()
            assert read_response(second)[0] == 200
        assert server.wait() == 0


def test_ignored_hangup_stays_ignored(gated: Gated) -> None:
    inherited = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with run_server(*gated.arguments) as server:
            signal.signal(signal.SIGHUP, inherited)
            assert httpx.get(f"{server.address}/health", timeout=60).status_code == 200
            server.process.send_signal(signal.SIGHUP)
            with open_request(server.address) as request:
                gated.wait_for_call()
                gated.release()
                assert read_response(request)[0] == 200
            assert not any('"stopping"' in line for line in server.log)
            assert server.stop() == 0
    finally:
        signal.signal(signal.SIGHUP, inherited)


@pytest.mark.parametrize(("number", "seconds", "status"), [(signal.SIGTERM, 0.05, 143), (signal.SIGINT, 0.25, 130)])
def test_second_signal_ends_server_immediately(
    gated: Gated, number: signal.Signals, seconds: float, status: int
) -> None:
    """Send it after the time in which a signal counts as the first, because a wrapper may forward it too."""
    with run_server(*gated.arguments, "--drain-timeout", "300") as server, open_request(server.address):
        gated.wait_for_call()
        server.process.send_signal(number)
        wait_until(lambda: any('"stopping"' in line for line in server.log))
        threading.Event().wait(seconds)
        server.process.send_signal(number)
        assert server.wait() == status
        assert any("second stop signal" in line for line in server.log)
        assert "Traceback" not in "".join(server.log)


_MODEL_WITH_THREAD = """
import threading

class Model:
    def __init__(self):
        threading.Thread(target=threading.Event().wait).start()

    def predict(self, image, parameters):
        return []
"""


def test_endless_thread_and_silent_collector_do_not_delay_stop(tmp_path: Path) -> None:
    write_model(tmp_path, _MODEL_WITH_THREAD, name="holding")
    with socket.create_server(("127.0.0.1", 0)) as collector:
        endpoint = f"http://127.0.0.1:{collector.getsockname()[1]}"
        with run_server("--model", str(tmp_path), "--allow-code", "--otlp-endpoint", endpoint) as server:
            with open_request(server.address) as connection:
                assert read_response(connection)[0] == 200
            assert server.stop() == 0
            assert any("traces were not sent" in line for line in server.log)
