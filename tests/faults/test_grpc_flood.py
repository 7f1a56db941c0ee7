"""Flood the gRPC port: probes are answered meanwhile, inferences afterwards, and bursts of clients always."""

from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import httpx
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest

from app.core.proto import message_class
from tests.faults.gated import GRPC_METHOD, unary_method
from tests.faults.grpc_flood import OVERSIZED_MESSAGE, STREAMS, flood
from tests.support.polling import wait_until
from tests.support.servers.server_process import ROOT, ServerProcess, run_server

pytestmark = pytest.mark.slow

HEALTH = "/grpc.health.v1.Health/Check"
MODEL = ROOT / "fixtures" / "models" / "half_plus_two"
INPUT = {"name": "x", "datatype": "FP32", "shape": [1], "contents": {"fp32_contents": [1]}}
REQUEST = message_class("inference.ModelInferRequest")(model_name="half_plus_two", inputs=[INPUT]).SerializeToString()
PROBE = HealthCheckRequest().SerializeToString()
FLOOD_SECONDS = 1.0
BURST = 256
"""Calls that one connection may have in flight by default."""


@pytest.fixture(scope="module")
def server() -> Generator[ServerProcess]:
    with run_server("--model", str(MODEL), "--no-page") as process:
        yield process
        assert process.stop() == 0


def outcome(channel: grpc.Channel, method: str, request: bytes) -> str:
    """Return the status of a call."""
    try:
        unary_method(channel, method)(request, timeout=60)
    except grpc.RpcError as error:
        failed: Any = error
        return failed.code().name
    return "OK"


@pytest.mark.parametrize("message_start", [b"", OVERSIZED_MESSAGE])
def test_flood_of_inferences_stops_no_probe_and_no_later_inference(server: ServerProcess, message_start: bytes) -> None:
    port = int(server.grpc_address.rpartition(":")[2])
    probes: Counter[str] = Counter()
    with grpc.insecure_channel(server.grpc_address) as channel, ThreadPoolExecutor(1) as pool:
        assert outcome(channel, GRPC_METHOD, REQUEST) == "OK"
        attack = pool.submit(flood, port, FLOOD_SECONDS, message_start=message_start)
        while not attack.done():
            probes[outcome(channel, HEALTH, PROBE)] += 1
            probes[str(httpx.get(f"{server.address}/ready", timeout=60).status_code)] += 1
        assert attack.result() > STREAMS
        assert probes.keys() == {"OK", "200"}
        wait_until(lambda: outcome(channel, GRPC_METHOD, REQUEST) == "OK")
    assert "Traceback" not in "".join(server.log)


def test_flood_of_probes_stops_no_inference(server: ServerProcess) -> None:
    port = int(server.grpc_address.rpartition(":")[2])
    inferences: Counter[str] = Counter()
    with grpc.insecure_channel(server.grpc_address) as channel, ThreadPoolExecutor(1) as pool:
        attack = pool.submit(flood, port, FLOOD_SECONDS, HEALTH)
        while not attack.done():
            inferences[outcome(channel, GRPC_METHOD, REQUEST)] += 1
        assert attack.result() > STREAMS
        assert inferences.keys() == {"OK"}


def test_burst_over_one_connection_is_not_taken_for_a_flood(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.grpc_address) as channel:
        call = unary_method(channel, GRPC_METHOD)
        assert call(REQUEST, timeout=60)
        calls = [call.future(REQUEST, timeout=60) for _ in range(BURST)]
        outcomes = Counter(future.code().name for future in calls)
    # The full queue of the server rejects calls with the time of a retry.
    assert outcomes.keys() <= {"OK", "RESOURCE_EXHAUSTED"}
