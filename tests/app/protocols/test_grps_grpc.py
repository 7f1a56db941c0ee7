"""GRPS over a real gRPC server: the call is always OK, what went wrong stands in the message."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import yaml

from app.proto import message_class
from tasks.exchange.error import ErrorKind
from tests.support.grpc_server import MAX_REQUEST_BYTES, Peer, built, serving_grpc
from tests.support.pictures import encoded, rectangle
from tests.support.speaker import Gate, Seen, Speaker, speaking

MESSAGE: Any = message_class("grps.protos.v1.GrpsMessage")
PICTURE = encoded(rectangle())
SUCCESS, FAILURE = 1, 2


@pytest.fixture(scope="module")
def seen() -> Seen:
    return Seen()


@pytest.fixture(scope="module")
def peer(seen: Seen) -> Iterator[Peer]:
    names = ("detector", "failing", "teller", "echo-fp32", "echo-int64", "echo-pair", "echo-bytes")
    with serving_grpc(built(names, observers=[seen])) as peer:
        yield peer


def call(peer: Peer, method: str, metadata: Any = (), **fields: Any) -> Any:
    data = MESSAGE(**fields).SerializeToString()
    return MESSAGE.FromString(peer.bytes(f"/grps.protos.v1.GrpsService/{method}", data, metadata))


def streamed(peer: Peer, **fields: Any) -> Iterator[Any]:
    stream = peer.channel.unary_stream("/grps.protos.v1.GrpsService/PredictStreaming")
    return (MESSAGE.FromString(each) for each in stream(MESSAGE(**fields).SerializeToString(), timeout=60))


def succeeded(message: Any) -> Any:
    assert (message.status.code, message.status.msg, message.status.status) == (200, "OK", SUCCESS)
    return message


def failed(message: Any) -> tuple[int, str]:
    assert message.status.status == FAILURE
    assert message.WhichOneof("data_oneof") is None
    return message.status.code, message.status.msg


def test_the_calls_of_the_projects_own_test(peer: Peer) -> None:
    for method in ("CheckLiveness", "Online", "CheckReadiness", "ServerMetadata"):
        succeeded(call(peer, method))
    assert succeeded(call(peer, "Predict", model="echo-bytes", str_data="hello grps.")).str_data == "hello grps."
    assert [succeeded(each).str_data for each in streamed(peer, model="echo-bytes", str_data="hello")] == ["hello"]
    told = yaml.safe_load(succeeded(call(peer, "ModelMetadata", str_data="echo-pair")).str_data)
    assert (told["name"], told["inputs"][0]["dtype"]) == ("echo-pair", "DT_INT64")


def test_offline_turns_readiness_off_and_goes_on_answering() -> None:
    engine = built(("detector",))
    with serving_grpc(engine) as peer:
        succeeded(call(peer, "Offline"))
        assert not engine.online
        assert failed(call(peer, "CheckReadiness")) == (503, "The server was taken offline by its operator")
        assert not peer.call("ServerReady").ready
        succeeded(call(peer, "CheckLiveness"))
        succeeded(call(peer, "Predict", bin_data=PICTURE))
        succeeded(call(peer, "Online"))
        succeeded(call(peer, "CheckReadiness"))
        assert peer.call("ServerReady").ready


def test_models_that_are_not_loaded() -> None:
    with serving_grpc(built(("detector",), loaded=False)) as peer:
        assert failed(call(peer, "CheckReadiness"))[0] == 503
        assert failed(call(peer, "Predict", bin_data=PICTURE))[0] == 503


def test_an_image_as_bytes_is_answered_with_records(peer: Peer, seen: Seen) -> None:
    answer = call(peer, "Predict", model="detector-1", bin_data=PICTURE, metadata=[("x-request-id", "r-1")])
    assert json.loads(succeeded(answer).str_data)[0]["label"] == "red"
    assert peer.trailing["x-request-id"] == "r-1"
    event = seen.events[-1]
    assert (event.caller.protocol, event.caller.request_id, event.model_name) == ("grps-grpc", "r-1", "detector")


def test_images_by_name_with_metadata(peer: Peer) -> None:
    gmap = {
        "s_b": {"a": PICTURE, "b": PICTURE},
        "s_s": {"b.metadata": " as it came ", "labels": '["red", "border"]'},
        "s_d": {"score_threshold": 0.25},
    }
    found = dict(succeeded(call(peer, "Predict", model="detector", gmap=gmap)).gmap.s_s)
    assert found.pop("b.metadata") == " as it came "
    assert {name: [each["label"] for each in json.loads(text)] for name, text in found.items()} == {
        name: ["red", "border"] for name in "ab"
    }


def test_tensors(peer: Peer) -> None:
    numbers = {"name": "numbers", "dtype": 5, "shape": [2], "flat_int64": [2**62, -1]}
    words = {"name": "words", "dtype": 9, "shape": [1, 1][:1], "flat_string": ["Åsa"]}
    answer = succeeded(call(peer, "Predict", model="echo-pair", gtensors={"tensors": [words, numbers]}))
    first, second = answer.gtensors.tensors
    assert (first.name, first.dtype, list(first.shape), list(first.flat_int64)) == ("numbers", 5, [2], [2**62, -1])
    assert (second.name, second.dtype, list(second.flat_string)) == ("words", 9, ["Åsa"])
    pixels = {"dtype": 1, "shape": [48, 64, 3], "flat_uint8": rectangle().ravel().tolist()}
    answer = succeeded(call(peer, "Predict", model="detector", gtensors={"tensors": [pixels]}))
    boxes = {each.name: each for each in answer.gtensors.tensors}["boxes"]
    assert np.reshape(boxes.flat_float32, list(boxes.shape)).tolist() == [[[10, 8, 30, 40]]]


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({"model": "nobody-1", "str_data": "a"}, 404, "model: Model 'nobody-1' is not known"),
        ({"model": "detector-9", "bin_data": PICTURE}, 404, "has no version '9'"),
        ({"bin_data": PICTURE}, 404, "model: Expected the name of a model"),
        ({"model": "detector"}, 400, "Expected str_data, bin_data"),
        ({"model": "detector", "bin_data": b"no image"}, 400, "bin_data: "),
        ({"model": "detector", "ndarray": {}}, 400, "ndarray: Expected gtensors"),
        ({"model": "detector", "gtensors": {}}, 400, "gtensors.tensors: Expected at least one tensor"),
        ({"model": "detector", "gmap": {"s_b": {"a": b"?"}}}, 400, "gmap.s_b[a]: "),
        ({"model": "echo-fp32", "gtensors": {"tensors": [{"dtype": 99}]}}, 400, "gtensors.tensors[0].dtype: "),
        ({"model": "failing", "bin_data": PICTURE}, 500, "The model failed"),
        ({"model": "detector", "gmap": {"s_b": {str(each): PICTURE for each in range(9)}}}, 413, "gmap.s_b: "),
    ],
)
def test_refusals_stand_in_the_message(peer: Peer, fields: dict[str, Any], code: int, said: str) -> None:
    found, reason = failed(call(peer, "Predict", **fields))
    assert found == code
    assert said in reason
    (message,) = streamed(peer, **fields)
    assert failed(message) == (code, reason)


def test_bytes_that_are_no_message(peer: Peer, seen: Seen) -> None:
    for method in ("Predict", "ModelMetadata"):
        answer = peer.bytes(f"/grps.protos.v1.GrpsService/{method}", b"\xff\xff\xff")
        assert failed(MESSAGE.FromString(answer)) == (400, "Expected a GrpsMessage, got other bytes")
    assert seen.events[-1].outcome is ErrorKind.INVALID_REQUEST


def test_metadata_of_nobody(peer: Peer) -> None:
    assert failed(call(peer, "ModelMetadata"))[0] == 400
    assert failed(call(peer, "ModelMetadata", str_data="detector-1"))[0] == 404


def test_text_is_streamed_as_it_is_made() -> None:
    gate = Gate()
    with serving_grpc(speaking(Speaker("a", " circle", gate=gate))) as peer:
        gmap = {"s_b": {"x": PICTURE}, "s_s": {"metadata": "m"}}
        answers = streamed(peer, model="speaker", gmap=gmap)
        for piece, echo in (("a", "m"), (" circle", "")):
            gate.open()
            found = succeeded(next(answers)).gmap
            assert (found.s_s["x"], found.s_i32["prompt"], found.s_i32["final"]) == (piece, 0, 0)
            assert found.s_s.get("metadata", "") == echo
        assert [(each.gmap.s_s["x"], each.gmap.s_i32["final"]) for each in answers] == [("", 1)]


def test_texts_are_continued_piece_by_piece() -> None:
    parameters = '{"return_full_text": true}'
    texts = {
        "s_s": {"a": "once", "b": "far", "b.metadata": "m", "parameters": parameters},
        "s_i32": {"max_new_tokens": 2},
    }
    with serving_grpc(built(("continuer",))) as peer:
        told = [succeeded(each).gmap for each in streamed(peer, gmap=texts)]
        (whole,) = [succeeded(call(peer, "Predict", gmap=texts)).gmap.s_s]
    pieces = [(dict(each.s_s), each.s_i32["final"]) for each in told]
    assert pieces == [({"a": "once"}, 0), ({"a": "on"}, 1), ({"b": "far", "b.metadata": "m"}, 0), ({"b": "fa"}, 1)]
    assert json.loads(whole["a"]) == [{"generated_text": "onceon"}]
    assert whole["b.metadata"] == "m"


def test_a_failure_on_the_way_is_the_last_message() -> None:
    with serving_grpc(speaking(Speaker("a", RuntimeError("no more")))) as peer:
        first, last = streamed(peer, model="speaker", bin_data=PICTURE)
    assert succeeded(first).str_data == "a"
    assert failed(last) == (500, "The model failed: no more")


def test_a_caller_who_leaves_frees_the_worker() -> None:
    gate = Gate(opened=1)
    speaker = Speaker(*"abcdef", gate=gate)
    with serving_grpc(speaking(speaker, workers=1)) as peer:
        stream = peer.channel.unary_stream("/grps.protos.v1.GrpsService/PredictStreaming")
        answers = stream(MESSAGE(model="speaker", bin_data=PICTURE).SerializeToString(), timeout=60)
        assert MESSAGE.FromString(next(answers)).str_data == "a"
        for _ in "ab":
            gate.await_step()
        answers.cancel()
        gate.open()
        # The only worker answers the next request once it has left the first.
        for _ in range(6):
            gate.open()
        succeeded(call(peer, "Predict", model="teller", bin_data=PICTURE))
        assert speaker.closed.is_set()


def test_one_message_for_each_image(peer: Peer) -> None:
    pixels = {"dtype": 1, "shape": [2, 48, 64, 3], "flat_uint8": np.stack([rectangle()] * 2).ravel().tolist()}
    parts = list(streamed(peer, model="detector", gtensors={"tensors": [pixels, pixels]}))
    assert [list(succeeded(each).gtensors.tensors[0].flat_int32) for each in parts] == [[1]] * 4


def test_a_message_beyond_the_limit_is_refused_by_grpc_itself(peer: Peer) -> None:
    with pytest.raises(Exception, match="RESOURCE_EXHAUSTED"):
        call(peer, "Predict", model="detector", bin_data=b"\0" * (MAX_REQUEST_BYTES + 1))
