"""`ModelStreamInfer`: requests in their order, errors in band, answers told while they are made."""

import queue
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest

from tests.support.grpc_server import Peer, built, message, serving_grpc
from tests.support.pictures import encoded, rectangle

PICTURE = encoded(rectangle(64, 48))


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    with serving_grpc(built(("teller", "failing", "echo-fp32"))) as peer:
        yield peer


def numbers(request_id: str, *values: float, model: str = "echo-fp32") -> Any:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, len(values)], "contents": {"fp32_contents": values}}
    return message("ModelInferRequest", model_name=model, id=request_id, inputs=[tensor])


def picture(model: str, request_id: str, **parameters: str) -> Any:
    tensor = {"name": "image", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [PICTURE]}}
    sent = {name: {"string_param": value} for name, value in parameters.items()}
    return message("ModelInferRequest", model_name=model, id=request_id, inputs=[tensor], parameters=sent)


def final(item: Any) -> bool:
    return item.infer_response.parameters["triton_final_response"].bool_param


def test_requests_are_answered_in_order(peer: Peer) -> None:
    items = list(peer.stream([numbers(f"r{index}", index) for index in range(20)]))
    assert [each.infer_response.id for each in items] == [f"r{index}" for index in range(20)]
    assert all(final(each) and not each.error_message for each in items)


def test_an_empty_stream_ends_well(peer: Peer) -> None:
    assert list(peer.stream([])) == []


def test_errors_are_told_in_band_and_the_stream_goes_on(peer: Peer) -> None:
    items = list(peer.stream([numbers("a", 1, model="nobody"), picture("failing", "b"), numbers("c", 1)]))
    assert [bool(each.error_message) for each in items] == [True, True, False]
    assert "nobody" in items[0].error_message
    assert [each.infer_response.id for each in items] == ["a", "b", "c"]
    assert not items[1].infer_response.outputs


def test_errors_end_the_stream_where_the_sender_asks_for_that(peer: Peer) -> None:
    requests = [numbers("a", 1), numbers("b", 1, model="nobody"), numbers("c", 1)]
    items: list[Any] = []
    with pytest.raises(grpc.RpcError) as caught:
        items.extend(peer.stream(requests, metadata=[("triton_grpc_error", "true")]))
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert "nobody" in error.details()


def test_a_text_is_told_in_pieces(peer: Peer) -> None:
    items = list(peer.stream([picture("teller", "t", prompts='["a", "b"]'), numbers("n", 1)]))
    pieces = items[:-1]
    assert [each.infer_response.id for each in items] == ["t"] * len(pieces) + ["n"]
    assert [final(each) for each in items] == [False] * (len(pieces) - 1) + [True, True]
    texts = {0: "", 1: ""}
    for each in pieces:
        (output,) = each.infer_response.outputs
        assert (output.name, output.datatype, list(output.shape)) == ("text_output", "BYTES", [1])
        texts[output.parameters["prompt"].int64_param] += output.contents.bytes_contents[0].decode()
        assert not each.infer_response.raw_output_contents
    assert texts == {0: "64x48", 1: "64x48"}


def test_a_stream_is_answered_in_the_form_of_each_request(peer: Peer) -> None:
    text, number = picture("teller", "t", prompts="a"), numbers("n", 1)
    for request in (text, number):
        raw = message("ModelInferRequest")
        raw.CopyFrom(request)
        raw.inputs[0].ClearField("contents")
        data = len(PICTURE).to_bytes(4, "little") + PICTURE if request is text else np.float32(1).tobytes()
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


def test_a_text_is_told_whole_where_its_form_is_asked_for(peer: Peer) -> None:
    (item,) = peer.stream([picture("teller", "t", prompts="a", output_format="records")])
    assert item.infer_response.outputs[0].name == "predictions"
    assert final(item)


def test_a_text_that_cannot_be_begun_is_an_error_in_band(peer: Peer) -> None:
    (item,) = peer.stream([picture("teller", "t", max_new_tokens="many")])
    assert "max_new_tokens" in item.error_message


def test_each_request_is_answered_before_the_next_one_is_sent(peer: Peer) -> None:
    waiting: queue.Queue[Any] = queue.Queue()
    items = peer.stream(iter(waiting.get, None))
    for index in range(3):
        waiting.put(numbers(f"r{index}", index))
        assert next(items).infer_response.id == f"r{index}"
    waiting.put(None)
    assert list(items) == []


def test_an_idle_stream_does_not_hold_up_the_end() -> None:
    waiting: queue.Queue[Any] = queue.Queue()
    with serving_grpc(built(("echo-fp32",)), drain_timeout=600) as peer:
        items = peer.stream(iter(waiting.get, None))
        waiting.put(numbers("a", 1))
        next(items)
    with pytest.raises(grpc.RpcError) as caught:
        next(items)
    waiting.put(None)
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.UNAVAILABLE
