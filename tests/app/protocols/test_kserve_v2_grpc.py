"""The Open Inference Protocol over a real gRPC server."""

from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import msgspec
import numpy as np
import pytest

from app import __version__
from app.engine.events import InferenceEvent
from tests.support.grpc_server import MAX_REQUEST_BYTES, Peer, built, message, serving_grpc
from tests.support.pictures import encoded, rectangle

PICTURE = encoded(rectangle())

Code = grpc.StatusCode


class Recorder:
    """Keeps what observers are told."""

    def __init__(self) -> None:
        self.events: list[InferenceEvent] = []

    def observe(self, event: InferenceEvent, /) -> None:
        self.events.append(event)


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(scope="module")
def peer(recorder: Recorder) -> Iterator[Peer]:
    names = ("classifier", "detector", "failing", "teller", "echo-fp32", "echo-bytes", "echo-pair", "hexer")
    with serving_grpc(built(names, observers=[recorder])) as peer:
        yield peer


@pytest.fixture(scope="module")
def unready() -> Iterator[Peer]:
    with serving_grpc(built(("detector",), loaded=False)) as peer:
        yield peer


def asked(model: str, *, picture: bytes = PICTURE, count: int = 1, **fields: Any) -> Any:
    tensor = {"name": "image", "datatype": "BYTES", "shape": [count], "contents": {"bytes_contents": [picture] * count}}
    return message("ModelInferRequest", **{"model_name": model, "inputs": [tensor], **fields})


def numbers(values: Sequence[float], model: str = "echo-fp32", **fields: Any) -> Any:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, len(values)], "contents": {"fp32_contents": values}}
    return message("ModelInferRequest", model_name=model, inputs=[tensor], **fields)


def elements(data: bytes) -> list[bytes]:
    found: list[bytes] = []
    while data:
        length = int.from_bytes(data[:4], "little")
        found.append(data[4 : 4 + length])
        data = data[4 + length :]
    return found


@pytest.mark.parametrize("raw", [True, False])
def test_bytes_that_are_not_utf8_reach_a_python_model(peer: Peer, raw: bool) -> None:
    given = [b"data:\xff", "å".encode()]
    tensor: dict[str, Any] = {"name": "input", "datatype": "BYTES", "shape": [2]}
    if raw:
        packed = b"".join(len(each).to_bytes(4, "little") + each for each in given)
        request = message("ModelInferRequest", model_name="hexer", inputs=[tensor], raw_input_contents=[packed])
    else:
        tensor["contents"] = {"bytes_contents": given}
        request = message("ModelInferRequest", model_name="hexer", inputs=[tensor])
    answer = peer.call("ModelInfer", request)
    found = list(answer.outputs[0].contents.bytes_contents) or elements(answer.raw_output_contents[0])
    assert found == [b"bytes 646174613aff", b"str c3a5"]


@pytest.mark.parametrize(
    ("timeout", "code"),
    [({"int64_param": 1}, Code.DEADLINE_EXCEEDED), ({"string_param": "1"}, Code.INVALID_ARGUMENT)],
)
def test_timeout_parameter_is_a_deadline(peer: Peer, timeout: dict[str, object], code: grpc.StatusCode) -> None:
    assert peer.refused("ModelInfer", numbers([1], parameters={"timeout": timeout}))[0] is code
    (item,) = peer.stream([numbers([1], parameters={"timeout": timeout})])
    assert item.error_message
    assert peer.call("ModelInfer", numbers([1], parameters={"timeout": {"uint64_param": 0}})).outputs


def test_live_ready_and_metadata(peer: Peer) -> None:
    assert peer.call("ServerLive").live
    assert peer.call("ServerReady").ready
    about = peer.call("ServerMetadata")
    assert (about.name, about.version) == ("charioteer", __version__)
    assert "model_repository" in about.extensions
    assert peer.call("ModelReady", message("ModelReadyRequest", name="detector")).ready
    told = peer.call("ModelMetadata", message("ModelMetadataRequest", name="echo-fp32", version="1"))
    assert (told.name, list(told.versions), told.platform) == ("echo-fp32", ["1"], "echo")
    assert [(each.name, each.datatype, list(each.shape)) for each in told.inputs] == [("x", "FP32", [-1, -1])]
    assert [each.name for each in told.outputs] == ["x"]


def test_what_is_not_ready(unready: Peer) -> None:
    assert unready.call("ServerLive").live
    assert not unready.call("ServerReady").ready
    assert not unready.call("ModelReady", message("ModelReadyRequest", name="detector")).ready
    assert unready.refused("ModelMetadata", message("ModelMetadataRequest", name="detector"))[0] is Code.UNAVAILABLE
    assert unready.refused("ModelInfer", asked("detector"))[0] is Code.UNAVAILABLE


@pytest.mark.parametrize("method", ["ModelReady", "ModelMetadata", "ModelStatistics"])
@pytest.mark.parametrize("fields", [{"name": "nobody"}, {"name": "detector", "version": "9"}])
def test_unknown_models_and_versions(peer: Peer, method: str, fields: dict[str, str]) -> None:
    code, said = peer.refused(method, message(f"{method}Request", **fields))
    assert code is Code.NOT_FOUND
    assert "detector" in said


def test_inference_of_unknown_models(peer: Peer) -> None:
    assert peer.refused("ModelInfer", asked("nobody"))[0] is Code.NOT_FOUND
    assert peer.refused("ModelInfer", asked(""))[0] is Code.NOT_FOUND
    assert peer.refused("ModelInfer", asked("detector", model_version="9"))[0] is Code.NOT_FOUND


def test_a_picture_is_answered_with_records(peer: Peer, recorder: Recorder) -> None:
    parameters = {"metadata": {"string_param": '[{"key":"a","type":"str","value":"b"}]'}}
    request = asked("detector", id="mine")
    request.inputs[0].parameters.get_or_create("metadata").string_param = parameters["metadata"]["string_param"]
    answer = peer.call("ModelInfer", request, metadata=[("x-request-id", "r-1"), ("chariot-inference-base-id", "b-1")])
    assert (answer.model_name, answer.model_version, answer.id) == ("detector", "1", "mine")
    (output,) = answer.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("predictions", "BYTES", [1])
    assert output.parameters["metadata"].string_param == parameters["metadata"]["string_param"]
    (record,) = output.contents.bytes_contents
    assert not answer.raw_output_contents
    assert msgspec.json.decode(record)[0]["label"] == "red"
    assert peer.trailing["x-request-id"] == "r-1"
    assert peer.trailing["chariot-inference-base-id"] == "b-1"
    event = recorder.events[-1]
    assert (event.caller.protocol, event.caller.request_id) == ("kserve-v2-grpc", "r-1")
    assert (event.caller.base_id, event.model_name, event.outcome) == ("b-1", "detector", None)


def test_metadata_of_the_request_is_the_default_of_its_inputs(peer: Peer, recorder: Recorder) -> None:
    request = asked("detector", parameters={"metadata": {"string_param": " of {all "}})
    assert peer.call("ModelInfer", request).outputs[0].parameters["metadata"].string_param == " of {all "
    request.inputs.add().CopyFrom(request.inputs[0])
    request.inputs[0].parameters.get_or_create("metadata").string_param = "its own"
    (output,) = peer.call("ModelInfer", request).outputs
    assert {name: output.parameters[name].string_param for name in output.parameters} == {
        "inputs[0].metadata": "its own",
        "inputs[1].metadata": " of {all ",
    }
    assert len(recorder.events[-1].metadata) == 2


def test_a_trace_context_is_passed_on(peer: Peer, recorder: Recorder) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    peer.call("ModelInfer", numbers([1.0]), metadata=[("traceparent", parent)])
    assert recorder.events[-1].caller.trace == {"traceparent": parent}


def test_a_request_without_an_id_is_given_one_that_is_only_in_the_metadata(peer: Peer) -> None:
    assert not peer.call("ModelInfer", numbers([1.0])).id
    assert peer.trailing["x-request-id"]
    peer.refused("ModelInfer", asked("nobody"), metadata=[("x-request-id", "r-2")])
    assert peer.trailing["x-request-id"] == "r-2"


def test_tensors_and_classification(peer: Peer) -> None:
    wanted = [{"name": "scores", "parameters": {"classification": {"int64_param": 2}}}, {"name": "labels"}]
    answer = peer.call("ModelInfer", asked("classifier", count=2, outputs=wanted))
    scores, labels = answer.outputs
    assert (scores.name, scores.datatype, list(scores.shape)) == ("scores", "BYTES", [2, 2])
    assert labels.name == "labels"
    assert scores.contents.bytes_contents[0].startswith(b"1.000000:0")
    tensors = {"output_format": {"string_param": "tensors"}}
    answer = peer.call("ModelInfer", asked("detector", parameters=tensors))
    boxes = [each.name for each in answer.outputs].index("boxes")
    output = answer.outputs[boxes]
    found = np.array(output.contents.fp32_contents).reshape(output.shape)
    assert found[0, 0].tolist() == [10, 8, 30, 40]


@pytest.mark.parametrize(
    ("request_", "code", "said"),
    [
        (asked("detector", picture=b"no picture"), Code.INVALID_ARGUMENT, "inputs[0]"),
        (asked("detector", count=9), Code.INVALID_ARGUMENT, "8"),
        (asked("detector", inputs=[]), Code.INVALID_ARGUMENT, "inputs"),
        (numbers([1.0], model="echo-bytes"), Code.INVALID_ARGUMENT, "inputs[0].datatype"),
        (numbers([1.0], model="echo-pair"), Code.INVALID_ARGUMENT, "inputs[0].name"),
        (numbers([1.0], raw_input_contents=[b"", b""]), Code.INVALID_ARGUMENT, "raw_input_contents"),
        (
            numbers([1.0], outputs=[{"name": "x", "parameters": {"shared_memory_region": {"string_param": "out"}}}]),
            Code.INVALID_ARGUMENT,
            "outputs[0].parameters.shared_memory_region",
        ),
        (asked("failing"), Code.INTERNAL, "a model that fails on 1"),
    ],
)
def test_refusals(peer: Peer, request_: Any, code: grpc.StatusCode, said: str) -> None:
    got, details = peer.refused("ModelInfer", request_)
    assert got is code
    assert said in details


def test_what_is_no_message_is_refused(peer: Peer) -> None:
    for method in ("ModelInfer", "ModelMetadata", "RepositoryIndex"):
        with pytest.raises(grpc.RpcError) as caught:
            peer.bytes(f"/inference.GRPCInferenceService/{method}", b"\xff\xff\xff")
        error: Any = caught.value
        assert error.code() is Code.INVALID_ARGUMENT


def test_a_refusal_is_never_longer_than_clients_take(peer: Peer) -> None:
    code, details = peer.refused("ModelInfer", asked("\N{GRINNING FACE}" * 5000))
    assert code is Code.NOT_FOUND
    assert len(details.encode()) < 2100


def test_messages_beyond_the_limit_are_refused_also_compressed(peer: Peer) -> None:
    large = asked("detector", picture=b"\0" * (MAX_REQUEST_BYTES + 1))
    assert peer.refused("ModelInfer", large)[0] is Code.RESOURCE_EXHAUSTED
    with pytest.raises(grpc.RpcError) as caught:
        peer.call("ModelInfer", large, compression=grpc.Compression.Gzip)
    error: Any = caught.value
    assert error.code() is Code.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_requests_are_read(peer: Peer, compression: grpc.Compression) -> None:
    values = [0.5] * 10_000
    answer = peer.call("ModelInfer", numbers(values), compression=compression)
    assert list(answer.outputs[0].contents.fp32_contents) == values


def test_statistics_count_by_model() -> None:
    with serving_grpc(built(("echo-fp32", "detector"))) as peer:
        peer.call("ModelInfer", numbers([1.0]))
        peer.call("ModelInfer", asked("detector", count=3))
        peer.refused("ModelInfer", asked("detector", picture=b""))
        (told,) = peer.call("ModelStatistics", message("ModelStatisticsRequest", name="detector")).model_stats
        assert (told.name, told.version, told.inference_count, told.execution_count) == ("detector", "1", 3, 1)
        assert (told.inference_stats.success.count, told.inference_stats.fail.count) == (1, 1)
        assert told.inference_stats.success.ns > 0
        assert [each.batch_size for each in told.batch_stats] == [3]
        assert told.last_inference > 1_700_000_000_000
        assert len(peer.call("ModelStatistics").model_stats) == 2
        one = message("ModelStatisticsRequest", name="detector", version="1")
        assert len(peer.call("ModelStatistics", one).model_stats) == 1


def test_the_repository_is_listed_unloaded_and_loaded() -> None:
    with serving_grpc(built(("echo-fp32", "detector"))) as peer:
        states = {each.name: (each.version, each.state) for each in peer.call("RepositoryIndex").models}
        assert states == {"detector": ("1", "READY"), "echo-fp32": ("1", "READY")}
        named = message("RepositoryModelUnloadRequest", model_name="detector")
        peer.call("RepositoryModelUnload", named)
        assert peer.refused("ModelInfer", asked("detector"))[0] is Code.UNAVAILABLE
        assert peer.call("ServerReady").ready
        ready = peer.call("RepositoryIndex", message("RepositoryIndexRequest", ready=True))
        assert [each.name for each in ready.models] == ["echo-fp32"]
        peer.call("RepositoryModelLoad", message("RepositoryModelLoadRequest", model_name="detector"))
        assert peer.call("ModelInfer", asked("detector")).outputs
        for method in ("RepositoryModelLoad", "RepositoryModelUnload"):
            assert peer.refused(method, message(f"{method}Request", model_name="nobody"))[0] is Code.NOT_FOUND
            other = message(f"{method}Request", model_name="detector", repository_name="other")
            assert peer.refused(method, other)[0] is Code.UNIMPLEMENTED
        configured = {"config": {"string_param": "{}"}}
        other = message("RepositoryModelLoadRequest", model_name="detector", parameters=configured)
        assert peer.refused("RepositoryModelLoad", other)[0] is Code.UNIMPLEMENTED


def test_unknown_methods_are_unimplemented(peer: Peer) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        peer.bytes("/inference.GRPCInferenceService/TraceSetting", b"")
    error: Any = caught.value
    assert error.code() is Code.UNIMPLEMENTED
