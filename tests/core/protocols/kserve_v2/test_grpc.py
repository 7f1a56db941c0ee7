"""Test the Open Inference Protocol over a real gRPC server."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
import msgspec
import pytest

from app import __version__
from tasks.inference.error import ErrorKind
from tests.support.data.requests import pack_elements
from tests.support.models.scripted_model import EventRecorder
from tests.support.polling import wait_until
from tests.support.servers.grpc_server import (
    GrpcTestClient,
    build_engine,
    image_request,
    message,
    number_request,
    raises_status,
    run_grpc_server,
)

Code = grpc.StatusCode


@pytest.fixture(scope="module")
def recorder() -> EventRecorder:
    return EventRecorder()


@pytest.fixture(scope="module")
def peer(recorder: EventRecorder) -> Iterator[GrpcTestClient]:
    names = ("classifier", "detector", "failing", "teller", "echo-fp32", "echo-bytes", "echo-pair", "hexer")
    with run_grpc_server(build_engine(names, observers=[recorder])) as peer:
        yield peer


@pytest.mark.parametrize("raw", [True, False])
def test_bytes_that_are_not_utf8_reach_a_python_model(peer: GrpcTestClient, raw: bool) -> None:
    values = [b"data:\xff", "å".encode()]
    tensor = {"name": "input", "datatype": "BYTES", "shape": [2]}
    contents = {} if raw else {"contents": {"bytes_contents": values}}
    blocks = [pack_elements(*values)] if raw else []
    request = message("ModelInferRequest", model_name="hexer", inputs=[tensor | contents], raw_input_contents=blocks)
    answer, expected = peer.call("ModelInfer", request), [b"bytes 646174613aff", b"str c3a5"]
    assert list(answer.raw_output_contents) == ([pack_elements(*expected)] if raw else [])
    assert list(answer.outputs[0].contents.bytes_contents) == ([] if raw else expected)


@pytest.mark.parametrize(
    ("timeout", "code"), [({"int64_param": 1}, Code.DEADLINE_EXCEEDED), ({"string_param": "1"}, Code.INVALID_ARGUMENT)]
)
def test_timeout_parameter_is_a_deadline(
    peer: GrpcTestClient, timeout: dict[str, object], code: grpc.StatusCode
) -> None:
    assert peer.call_error("ModelInfer", number_request([1], parameters={"timeout": timeout}))[0] is code
    (item,) = peer.stream([number_request([1], parameters={"timeout": timeout})])
    assert item.error_message
    assert peer.call("ModelInfer", number_request([1], parameters={"timeout": {"uint64_param": 0}})).outputs


def test_live_ready_and_metadata_methods_answer(peer: GrpcTestClient) -> None:
    assert peer.call("ServerLive").live
    assert peer.call("ServerReady").ready
    server_metadata = peer.call("ServerMetadata")
    assert (server_metadata.name, server_metadata.version) == ("charioteer", __version__)
    assert "binary_tensor_data" in server_metadata.extensions
    assert peer.call("ModelReady", message("ModelReadyRequest", name="detector")).ready
    model_metadata = peer.call("ModelMetadata", message("ModelMetadataRequest", name="echo-fp32", version="1"))
    assert (model_metadata.name, list(model_metadata.versions), model_metadata.platform) == ("echo-fp32", ["1"], "echo")
    assert [(tensor.name, tensor.datatype, list(tensor.shape)) for tensor in model_metadata.inputs] == [
        ("x", "FP32", [-1, -1])
    ]
    assert [tensor.name for tensor in model_metadata.outputs] == ["x"]


@pytest.mark.parametrize(("name", "version"), [("missing", ""), ("detector", "9"), ("", "")])
def test_unknown_model_or_version_is_not_found_and_not_ready(peer: GrpcTestClient, name: str, version: str) -> None:
    assert not peer.call("ModelReady", message("ModelReadyRequest", name=name, version=version)).ready
    code, details = peer.call_error("ModelMetadata", message("ModelMetadataRequest", name=name, version=version))
    assert (code, "detector" in details) == (Code.NOT_FOUND, True)
    assert peer.call_error("ModelInfer", image_request(name, model_version=version))[0] is Code.NOT_FOUND


def test_image_is_answered_with_records_and_ids(peer: GrpcTestClient, recorder: EventRecorder) -> None:
    parameters = {"metadata": {"string_param": '[{"key":"a","type":"str","value":"b"}]'}}
    request = image_request("detector", id="mine")
    request.inputs[0].parameters.get_or_create("metadata").string_param = parameters["metadata"]["string_param"]
    ids = {"x-request-id": "r-1", "chariot-inference-base-id": "b-1"}
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    answer = peer.call("ModelInfer", request, metadata=[*ids.items(), ("traceparent", parent)])
    assert (answer.model_name, answer.model_version, answer.id) == ("detector", "1", "mine")
    (output,) = answer.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("predictions", "BYTES", [1])
    assert output.parameters["metadata"].string_param == parameters["metadata"]["string_param"]
    (record,) = output.contents.bytes_contents
    assert not answer.raw_output_contents
    assert msgspec.json.decode(record)[0]["label"] == "red"
    assert ids.items() <= peer.trailing_metadata.items()
    event = recorder.events[-1]
    assert (event.protocol, event.request_id, event.trace) == ("kserve-v2-grpc", "r-1", {"traceparent": parent})
    assert (event.base_id, event.model_name, event.outcome) == ("b-1", "detector", None)


def test_generated_request_id_is_only_in_trailing_metadata(peer: GrpcTestClient) -> None:
    assert not peer.call("ModelInfer", number_request([1.0])).id
    assert peer.trailing_metadata["x-request-id"]
    peer.call_error("ModelInfer", image_request("missing"), metadata=[("x-request-id", "r-2")])
    assert peer.trailing_metadata["x-request-id"] == "r-2"


@pytest.mark.parametrize(
    ("request_", "code", "error_text"),
    [
        (image_request("detector", image=b"no picture"), Code.INVALID_ARGUMENT, "inputs[0]"),
        (image_request("detector", count=9), Code.INVALID_ARGUMENT, "8"),
        (image_request("failing"), Code.INTERNAL, "a model that fails on 1"),
        (message("ModelInferRequest"), Code.NOT_FOUND, "The request names no model. This server has: classifier, "),
        (
            message("ModelInferRequest", model_name="echo-fp32"),
            Code.INVALID_ARGUMENT,
            "of the model, x (FP32), got none",
        ),
    ],
)
def test_bad_request_status_names_the_cause(
    peer: GrpcTestClient, request_: Any, code: grpc.StatusCode, error_text: str
) -> None:
    actual_code, details = peer.call_error("ModelInfer", request_)
    assert actual_code is code
    assert error_text in details


def test_invalid_protobuf_bytes_are_rejected(peer: GrpcTestClient) -> None:
    for method in ("ModelInfer", "ModelMetadata", "RepositoryIndex"):
        with raises_status(Code.INVALID_ARGUMENT):
            peer.call_bytes(f"/inference.GRPCInferenceService/{method}", b"\xff\xff\xff")


def test_long_error_details_are_truncated(peer: GrpcTestClient) -> None:
    code, details = peer.call_error("ModelInfer", image_request("\N{GRINNING FACE}" * 5000))
    assert code is Code.NOT_FOUND
    assert len(details.encode()) < 2100


def test_messages_of_a_stream_are_observed_one_by_one(peer: GrpcTestClient, recorder: EventRecorder) -> None:
    recorder.events.clear()
    metadata = {"metadata": {"string_param": '{"extended_metadata": [{"key": "a", "type": "int", "value": 1}]}'}}
    late = {"timeout": {"int64_param": 1}}
    requests = [
        number_request([1], parameters=late),
        number_request([2], parameters=metadata),
        number_request([3], model="missing"),
        number_request([4]),
    ]
    assert [bool(item.error_message) for item in peer.stream(requests)] == [True, False, True, False]
    # The message that is late may be observed after the others.
    wait_until(lambda: len(recorder.events) == len(requests))
    assert Counter((event.outcome, len(event.metadata.of())) for event in recorder.events) == {
        (ErrorKind.DEADLINE_EXCEEDED, 0): 1,
        (None, 1): 1,
        (ErrorKind.MODEL_NOT_FOUND, 0): 1,
        (None, 0): 1,
    }
    assert len({event.id for event in recorder.events}) == 4
    assert len({id(event.response_headers) for event in recorder.events}) == 4, "they share no headers"
    assert len({event.request_id for event in recorder.events}) == 1, "the ids are those of the stream"
