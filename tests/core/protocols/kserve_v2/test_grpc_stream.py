"""Test `ModelStreamInfer`: request order, in-band errors and streamed answers."""

import queue
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest

from tests.support.data.requests import pack_elements
from tests.support.models.scripted_model import Gate, ScriptedModel, scripted_engine
from tests.support.servers.grpc_server import (
    IMAGE,
    GrpcTestClient,
    build_engine,
    image_request,
    message,
    number_request,
    raises_status,
    run_grpc_server,
)


@pytest.fixture(scope="module")
def peer() -> Iterator[GrpcTestClient]:
    with run_grpc_server(build_engine(("teller", "failing", "echo-fp32"))) as peer:
        yield peer


def question(**parameters: str) -> Any:
    texts = {name: {"string_param": value} for name, value in parameters.items()}
    return image_request("teller", id="t", parameters=texts)


def is_final(item: Any) -> bool:
    return item.infer_response.parameters["triton_final_response"].bool_param


def test_requests_are_answered_in_order(peer: GrpcTestClient) -> None:
    items = list(peer.stream([number_request([index], id=f"r{index}") for index in range(20)]))
    assert [item.infer_response.id for item in items] == [f"r{index}" for index in range(20)]
    assert all(is_final(item) and not item.error_message for item in items)


def test_errors_are_in_band_and_the_stream_continues(peer: GrpcTestClient) -> None:
    rejected = [number_request([1], model="missing", id="a"), image_request("failing", id="b")]
    items = list(peer.stream([*rejected, number_request([1], id="c")]))
    assert [bool(item.error_message) for item in items] == [True, True, False]
    assert "missing" in items[0].error_message
    assert [item.infer_response.id for item in items] == ["a", "b", "c"]
    assert not items[1].infer_response.outputs


def test_error_ends_the_stream_if_triton_grpc_error_is_set(peer: GrpcTestClient) -> None:
    requests = [number_request([1], id="a"), number_request([1], model="missing", id="b"), number_request([1], id="c")]
    with raises_status(grpc.StatusCode.NOT_FOUND, "missing"):
        list(peer.stream(requests, metadata=[("triton_grpc_error", "true")]))


def test_text_is_streamed_in_chunks(peer: GrpcTestClient) -> None:
    items = list(peer.stream([question(prompts='["a", "b"]'), number_request([1], id="n")]))
    text_items = items[:-1]
    assert [item.infer_response.id for item in items] == ["t"] * len(text_items) + ["n"]
    assert [is_final(item) for item in items] == [False] * (len(text_items) - 1) + [True, True]
    texts = {0: "", 1: ""}
    for item in text_items:
        (output,) = item.infer_response.outputs
        assert (output.name, output.datatype, list(output.shape)) == ("text_output", "BYTES", [1])
        texts[output.parameters["prompt"].int64_param] += output.contents.bytes_contents[0].decode()
        assert not item.infer_response.raw_output_contents
    assert texts == {0: "64x48", 1: "64x48"}


def test_chunks_are_sent_while_they_are_generated() -> None:
    gate = Gate()
    with run_grpc_server(scripted_engine(ScriptedModel("a", " circle", gate=gate))) as peer:
        items = peer.stream([image_request("speaker", id="t")])
        for text in (b"a", b" circle"):
            gate.open()
            item = next(items)
            assert (item.infer_response.outputs[0].contents.bytes_contents[0], is_final(item)) == (text, False)
        assert [is_final(item) for item in items] == [True]


def test_stream_response_form_follows_each_request(peer: GrpcTestClient) -> None:
    text, number = question(prompts="a"), number_request([1], id="n")
    for request in (text, number):
        raw = message("ModelInferRequest")
        raw.CopyFrom(request)
        raw.inputs[0].ClearField("contents")
        data = pack_elements(IMAGE) if request is text else np.float32(1).tobytes()
        raw.raw_input_contents.append(data)
        typed_items, raw_items = list(peer.stream([request])), list(peer.stream([raw]))
        assert typed_items
        assert len(raw_items) == len(typed_items)
        for item in typed_items:
            assert item.infer_response.outputs[0].HasField("contents")
            assert not item.infer_response.raw_output_contents
        for item in raw_items:
            assert not item.infer_response.outputs[0].HasField("contents")
            assert len(item.infer_response.raw_output_contents) == 1


def test_text_is_sent_in_one_response_if_output_format_is_set(peer: GrpcTestClient) -> None:
    (item,) = peer.stream([question(prompts="a", output_format="records")])
    assert item.infer_response.outputs[0].name == "predictions"
    assert is_final(item)


def test_idle_stream_does_not_delay_shutdown() -> None:
    request_queue: queue.Queue[Any] = queue.Queue()
    with run_grpc_server(build_engine(("echo-fp32",)), drain_timeout=600) as peer:
        items = peer.stream(iter(request_queue.get, None))
        request_queue.put(number_request([1], id="a"))
        next(items)
        stopped = peer.stop_server()
        with raises_status(grpc.StatusCode.UNAVAILABLE):
            next(items)
        stopped.result(60)
    request_queue.put(None)


def test_stream_that_its_client_has_ended_completes_during_shutdown() -> None:
    gate = Gate()
    with run_grpc_server(scripted_engine(ScriptedModel("a", gate=gate)), drain_timeout=600) as peer:
        items = peer.stream([image_request("speaker", id="t")])
        gate.wait_for_arrival()
        stopped = peer.stop_server()
        gate.open()
        assert [is_final(item) for item in items] == [False, True]
        stopped.result(60)
