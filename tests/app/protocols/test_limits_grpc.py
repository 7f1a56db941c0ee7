"""Every limit over gRPC: at the bound an answer, above it a refusal, and the channel goes on."""

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from app.engine.admission import Bounds
from app.protocols.grps.messages import GrpsMessage
from tests.support.grpc_server import Peer, built, message, serving_grpc
from tests.support.limited import limited


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    with serving_grpc(limited()) as peer:
        yield peer


def refused_by(peer: Peer, **fields: Any) -> str:
    code, details = peer.refused("ModelInfer", message("ModelInferRequest", **fields))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    return details


def test_grpc_messages_are_bounded(peer: Peer) -> None:
    def numbers(count: int) -> dict[str, Any]:
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, count], "contents": {"fp32_contents": [0.5] * count}}
        return {"model_name": "echo-fp32", "inputs": [tensor]}

    # The sizes of a tensor are packed numbers too.
    peer.call("ModelInfer", message("ModelInferRequest", **numbers(598)))
    assert refused_by(peer, **numbers(599)) == "Expected at most 600 tensor elements in one request, got 601"
    raw = {"name": "x", "datatype": "FP32", "shape": [1, 601]}
    error = refused_by(peer, model_name="echo-fp32", inputs=[raw], raw_input_contents=[bytes(2404)])
    assert error == "inputs[0]: Expected at most 600 tensor elements in one request, got 601"
    assert refused_by(peer, model_name="detector", raw_input_contents=[b""] * 31) == (
        "Expected at most 30 fields in one message, got more"
    )
    assert "at most 40 bytes in a name, got 41" in refused_by(peer, id="i" * 41, **numbers(1))
    peer.call("ModelInfer", message("ModelInferRequest", **numbers(598)))


def test_grps_messages_are_bounded_over_grpc(peer: Peer) -> None:
    def predict(count: int) -> tuple[int, str]:
        sent = GrpsMessage(model="echo-fp32")
        sent.gtensors.tensors.add(name="x", dtype=7, shape=[1, count], flat_float32=[0.5] * count)
        answer = peer.bytes("/grps.protos.v1.GrpsService/Predict", sent.SerializeToString())
        found = GrpsMessage.FromString(answer)
        return found.status.code, found.status.msg

    assert predict(598) == (200, "OK")
    assert predict(599) == (413, "Expected at most 600 tensor elements in one request, got 601")
    sent = GrpsMessage(model="detector")
    for index in range(40):
        sent.gmap.s_i32[str(index)] = index
    answer = GrpsMessage.FromString(peer.bytes("/grps.protos.v1.GrpsService/Predict", sent.SerializeToString()))
    assert (answer.status.code, answer.status.msg) == (413, "Expected at most 30 fields in one message, got more")


def test_a_compressed_grpc_message_is_bounded_by_its_real_size(peer: Peer) -> None:
    bomb = message("ModelInferRequest", model_name="detector", raw_input_contents=[bytes(10_000_000)])
    with pytest.raises(grpc.RpcError) as caught:
        peer.call("ModelInfer", bomb, compression=grpc.Compression.Gzip)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert peer.call("ServerLive").live


def test_the_streams_of_one_client_are_bounded() -> None:
    with serving_grpc(built(("echo-fp32",), bounds=Bounds(max_each_client=2))) as peer:
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1], "contents": {"fp32_contents": [0.5]}}
        request = message("ModelInferRequest", model_name="echo-fp32", inputs=[tensor])
        proceed = threading.Event()

        def requests() -> Iterator[Any]:
            yield request
            assert proceed.wait(60)

        first = peer.stream(requests())
        assert not next(first).error_message
        peer.call("ModelInfer", request)
        second = peer.stream(requests())
        # The stream is one, and a request of it another: the first has both.
        assert "2 requests or streams of your address in flight" in next(second).error_message
        proceed.set()
        assert list(first) == []
        assert list(second) == []
