"""Test GRPS over a real gRPC server: every call returns OK, and the message contains any error."""

import json
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
import yaml

from app.core.server.grpc.interceptors import CallShedder
from app.core.server.load_shedding import OVERLOADED
from app.plugins.grps.proto import message_class
from tasks.inference.error import ErrorKind
from tests.support.data.images import encode_image, rectangle
from tests.support.models.scripted_model import EventRecorder, Gate, ScriptedModel, scripted_engine
from tests.support.protocols import GRPC_PROTOCOLS
from tests.support.servers.grpc_server import GrpcTestClient, build_engine, run_grpc_server
from tests.support.servers.limited_engines import engine_with_low_limits, full_engine

MESSAGE: Any = message_class("grps.protos.v1.GrpsMessage")
IMAGE = encode_image(rectangle())
SUCCESS, FAILURE = 1, 2


@pytest.fixture(scope="module")
def seen() -> EventRecorder:
    return EventRecorder()


@pytest.fixture(scope="module")
def peer(seen: EventRecorder) -> Iterator[GrpcTestClient]:
    names = ("detector", "failing", "teller", "echo-fp32", "echo-int64", "echo-pair", "echo-bytes")
    with run_grpc_server(build_engine(names, observers=[seen])) as peer:
        yield peer


def call(peer: GrpcTestClient, method: str, metadata: Any = (), **fields: Any) -> Any:
    data = MESSAGE(**fields).SerializeToString()
    return MESSAGE.FromString(peer.call_bytes(f"/grps.protos.v1.GrpsService/{method}", data, metadata))


def open_stream(peer: GrpcTestClient, **fields: Any) -> Any:
    stream = peer.channel.unary_stream("/grps.protos.v1.GrpsService/PredictStreaming")
    return stream(MESSAGE(**fields).SerializeToString(), timeout=60)


def stream_predict(peer: GrpcTestClient, **fields: Any) -> Iterator[Any]:
    return map(MESSAGE.FromString, open_stream(peer, **fields))


def assert_success(message: Any) -> Any:
    assert (message.status.code, message.status.msg, message.status.status) == (200, "OK", SUCCESS)
    return message


def error_status(message: Any) -> tuple[int, str]:
    assert message.status.status == FAILURE
    assert message.WhichOneof("data_oneof") is None
    return message.status.code, message.status.msg


def test_calls_of_the_upstream_grps_client_test_succeed(peer: GrpcTestClient) -> None:
    for method in ("CheckLiveness", "Online", "CheckReadiness", "ServerMetadata"):
        assert_success(call(peer, method))
    assert assert_success(call(peer, "Predict", model="echo-bytes", str_data="hello grps.")).str_data == "hello grps."
    (message,) = stream_predict(peer, model="echo-bytes", str_data="hello")
    assert assert_success(message).str_data == "hello"
    metadata = yaml.safe_load(assert_success(call(peer, "ModelMetadata", str_data="echo-pair")).str_data)
    assert (metadata["name"], metadata["inputs"][0]["dtype"]) == ("echo-pair", "DT_INT64")


def test_image_bytes_return_records_as_json(peer: GrpcTestClient, seen: EventRecorder) -> None:
    answer = call(peer, "Predict", model="detector-1", bin_data=IMAGE, metadata=[("x-request-id", "r-1")])
    assert json.loads(assert_success(answer).str_data)[0]["label"] == "red"
    assert peer.trailing_metadata["x-request-id"] == "r-1"
    event = seen.events[-1]
    assert (event.protocol, event.request_id, event.model_name) == ("grps-grpc", "r-1", "detector")


@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [
        ({"model": "missing-1", "str_data": "a"}, 404, "model: Model 'missing-1' is not known"),
        ({"model": "detector", "ndarray": {}}, 400, "ndarray: Expected gtensors"),
        ({"model": "failing", "bin_data": IMAGE}, 500, "The model failed"),
        ({"model": "detector", "gmap": {"s_b": {str(number): IMAGE for number in range(9)}}}, 413, "gmap.s_b: "),
    ],
)
def test_errors_are_in_the_message_status(peer: GrpcTestClient, fields: Any, code: int, reason: str) -> None:
    found = error_status(call(peer, "Predict", **fields))
    assert (found[0], reason in found[1]) == (code, True), found
    (message,) = stream_predict(peer, **fields)
    assert error_status(message) == found


def test_invalid_protobuf_bytes_are_an_invalid_request(peer: GrpcTestClient, seen: EventRecorder) -> None:
    for method in ("Predict", "ModelMetadata"):
        answer = peer.call_bytes(f"/grps.protos.v1.GrpsService/{method}", b"\xff\xff\xff")
        assert error_status(MESSAGE.FromString(answer)) == (400, "Expected a GrpsMessage, got other bytes")
    assert seen.events[-1].outcome is ErrorKind.INVALID_REQUEST


def test_text_is_streamed_while_it_is_generated() -> None:
    gate = Gate()
    with run_grpc_server(scripted_engine(ScriptedModel("a", " circle", gate=gate))) as peer:
        gmap = {"s_b": {"x": IMAGE}, "s_s": {"metadata": "m"}}
        answers = stream_predict(peer, model="speaker", gmap=gmap)
        for text, echo in (("a", "m"), (" circle", "")):
            gate.open()
            gmap_reply = assert_success(next(answers)).gmap
            assert (gmap_reply.s_s["x"], gmap_reply.s_i32["prompt"], gmap_reply.s_i32["final"]) == (text, 0, 0)
            assert gmap_reply.s_s.get("metadata", "") == echo
        assert [(message.gmap.s_s["x"], message.gmap.s_i32["final"]) for message in answers] == [("", 1)]


def test_failure_during_a_stream_is_the_last_message() -> None:
    with run_grpc_server(scripted_engine(ScriptedModel("a", RuntimeError("no more")))) as peer:
        first, last = stream_predict(peer, model="speaker", bin_data=IMAGE)
    assert assert_success(first).str_data == "a"
    assert error_status(last) == (500, "The model failed: no more")


def test_cancelled_stream_frees_the_worker() -> None:
    gate = Gate(initial_passes=1)
    speaker = ScriptedModel(*"abcdef", gate=gate)
    with run_grpc_server(scripted_engine(speaker, workers=1)) as peer:
        answers = open_stream(peer, model="speaker", bin_data=IMAGE)
        assert MESSAGE.FromString(next(answers)).str_data == "a"
        for _ in "ab":
            gate.wait_for_arrival()
        answers.cancel()
        gate.open()
        # The only worker can answer the next request only after the first stream has stopped.
        for _ in range(6):
            gate.open()
        assert_success(call(peer, "Predict", model="teller", bin_data=IMAGE))
        assert speaker.closed.is_set()


def test_message_limits_are_enforced() -> None:
    with run_grpc_server(engine_with_low_limits()) as peer:
        for count, code in ((598, 200), (599, 413)):
            tensor = {"name": "x", "dtype": 7, "shape": [1, count], "flat_float32": [0.5] * count}
            answer = call(peer, "Predict", model="echo-fp32", gtensors={"tensors": [tensor]})
            assert answer.status.code == code, answer.status.msg


def test_overloaded_server_rejects_inferences_unread_but_answers_probes() -> None:
    with full_engine("detector") as (engine, _):
        shedder = CallShedder(engine, GRPC_PROTOCOLS)
        # Parsing these invalid messages would give another error.
        with run_grpc_server(engine, interceptors=[shedder]) as peer:
            with pytest.raises(grpc.RpcError) as caught:
                peer.call_bytes("/inference.GRPCInferenceService/ModelInfer", b"\xff", [("x-request-id", "mine")])
            error: Any = caught.value
            assert (error.code(), error.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, OVERLOADED)
            metadata = dict(error.trailing_metadata())
            assert (metadata["grpc-retry-pushback-ms"], metadata["x-request-id"]) == ("1000", "mine")
            answer = MESSAGE.FromString(peer.call_bytes("/grps.protos.v1.GrpsService/Predict", b"\xff"))
            assert error_status(answer) == (429, OVERLOADED)
            assert peer.call("ServerLive").live
