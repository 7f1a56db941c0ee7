"""Test every limit over gRPC: messages at the limit are answered, messages above it are rejected."""

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from app.core.engine.scheduling.admission import QueueLimits
from tests.support.servers.grpc_server import (
    GrpcTestClient,
    build_engine,
    message,
    number_request,
    raises_status,
    run_grpc_server,
)
from tests.support.servers.low_limits import engine_with_low_limits


@pytest.fixture(scope="module")
def peer() -> Iterator[GrpcTestClient]:
    with run_grpc_server(engine_with_low_limits()) as peer:
        yield peer


def error_details(peer: GrpcTestClient, request: Any = None, **fields: Any) -> str:
    code, details = peer.call_error("ModelInfer", request or message("ModelInferRequest", **fields))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    return details


def test_kserve_message_limits_are_enforced_over_grpc(peer: GrpcTestClient) -> None:
    # The two sizes of the shape count as elements too.
    peer.call("ModelInfer", number_request([0.5] * 598))
    error = error_details(peer, number_request([0.5] * 599))
    assert error == "Expected at most 600 tensor elements in one request, got 601"
    raw = {"name": "x", "datatype": "FP32", "shape": [1, 601]}
    error = error_details(peer, model_name="echo-fp32", inputs=[raw], raw_input_contents=[bytes(2404)])
    assert error == "inputs[0]: Expected at most 600 tensor elements in one request, got 601"
    texts = {"name": "x", "datatype": "BYTES", "shape": [31]}
    error = error_details(peer, model_name="detector", inputs=[texts], raw_input_contents=[bytes(4 * 31)])
    assert error == "raw_input_contents[0]: Expected at most 30 BYTES elements in one tensor, got more"
    assert error_details(peer, model_name="detector", raw_input_contents=[b""] * 31) == (
        "Expected at most 30 fields in one message, got more"
    )
    assert "at most 40 bytes in a name, got 41" in error_details(peer, number_request([0.5], id="i" * 41))
    peer.call("ModelInfer", number_request([0.5] * 598))


def test_compressed_message_is_limited_by_its_decompressed_size(peer: GrpcTestClient) -> None:
    bomb = message("ModelInferRequest", model_name="detector", raw_input_contents=[bytes(10_000_000)])
    with raises_status(grpc.StatusCode.RESOURCE_EXHAUSTED):
        peer.call("ModelInfer", bomb, compression=grpc.Compression.Gzip)
    assert peer.call("ServerLive").live


def test_streams_per_client_are_limited() -> None:
    with run_grpc_server(build_engine(("echo-fp32",), bounds=QueueLimits(max_each_client=2))) as peer:
        request = number_request([0.5])
        proceed = threading.Event()

        def requests() -> Iterator[Any]:
            yield request
            assert proceed.wait(60)

        first = peer.stream(requests())
        assert not next(first).error_message
        peer.call("ModelInfer", request)
        second = peer.stream(requests())
        # A stream takes one slot and its request another. The two streams leave no slot for the request.
        assert "2 requests or streams of your address in flight" in next(second).error_message
        proceed.set()
        assert list(first) == []
        assert list(second) == []
