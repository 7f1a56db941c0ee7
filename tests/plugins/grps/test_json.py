"""Test GRPS messages in JSON: round trips, and errors that name the field."""

import json
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from google.protobuf.json_format import MessageToDict, MessageToJson, Parse

from app.core.wire.protobuf_limits import parse_message
from app.plugins.grps.json_messages import encode_json, encode_streamed, read_json_message
from app.plugins.grps.messages import GrpsMessage, with_success_status
from tasks.inference.error import InferenceError
from tasks.inference.limits import Limits


def assert_equal_messages(actual: Any, expected: Any) -> None:
    """Assert that two messages are equal, where NaN equals NaN."""
    assert MessageToDict(actual) == MessageToDict(expected)


TENSORS = [
    {"name": "å", "dtype": 1, "shape": [2], "flat_uint8": [0, 255]},
    {"dtype": 5, "shape": [2], "flat_int64": [-(2**63), 2**63 - 1]},
    {"dtype": 7, "shape": [4], "flat_float32": [math.nan, math.inf, -0.0, 0.1]},
    {"dtype": 8, "shape": [1], "flat_float64": [1e300]},
    {"dtype": 9, "shape": [2], "flat_string": ["", "å"]},
]
MAPS = {
    "s_s": {"a": "å"},
    "s_b": {"": b"\xff"},
    "s_i32": {"a": -(2**31)},
    "s_i64": {"a": 2**63 - 1},
    "s_f": {"a": 0.1, "b": math.inf},
    "s_d": {"a": math.nan},
}


@pytest.mark.parametrize("fields", [{"str_data": "å"}, {"gtensors": {"tensors": TENSORS}}, {"gmap": MAPS}])
def test_json_is_compatible_with_protobuf_in_both_directions(fields: dict[str, Any]) -> None:
    message = GrpsMessage(model="m", **fields)
    copy = parse_message(GrpsMessage, message.SerializeToString(), Limits())
    assert_equal_messages(Parse(encode_json(copy), GrpsMessage()), message)
    text = MessageToJson(message, preserving_proto_field_name=True)
    assert_equal_messages(read_json_message(text.encode())[0], message)


def test_largest_floats_are_read_as_protobuf_writes_them() -> None:
    # protobuf rounds them, and then cannot read them.
    largest = float(np.finfo(np.float32).max)
    message = GrpsMessage(gtensors={"tensors": [{"flat_float32": [largest, -largest]}]})
    text = MessageToJson(message, preserving_proto_field_name=True)
    assert_equal_messages(read_json_message(text.encode())[0], message)


def test_stream_message_is_indented_by_two_spaces() -> None:
    message = with_success_status(GrpsMessage(str_data="å"))
    expected = {"status": {"code": 200, "msg": "OK", "status": "SUCCESS"}, "str_data": "å"}
    assert encode_streamed(message).decode() == json.dumps(expected, indent=2, ensure_ascii=False)


def test_long_text_among_integers_does_not_multiply_memory() -> None:
    values = ["1"] * 10_000 + ["1" * 100_000]
    body = {"gtensors": {"tensors": [{"dtype": 5, "shape": [10_001], "flat_int64": values}]}}
    tracemalloc.start()
    try:
        with pytest.raises(InferenceError) as caught:
            read_json_message(json.dumps(body).encode())
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert caught.value.path == "gtensors.tensors[0].flat_int64[10000]"
    assert len(str(caught.value)) < 300


def test_null_fields_are_absent() -> None:
    message, _ = read_json_message(b'{"str_data": null, "gmap": {"s_b": null}, "ndarray": null, "model": null}')
    assert (message.WhichOneof("data_oneof"), message.model) == ("gmap", "")
    message, _ = read_json_message(b'{"gtensors": {"tensors": null}}')
    assert len(message.gtensors.tensors) == 0


def test_status_names_the_tensors_that_an_ndarray_leaves_out() -> None:
    def status_text(*names: str) -> str:
        tensors = [{"name": name, "dtype": 7, "shape": [1], "flat_float32": [1]} for name in names]
        message = with_success_status(GrpsMessage(gtensors={"tensors": tensors}))
        content = json.loads(encode_json(message, as_ndarray=True))
        assert content["ndarray"] == [1.0]
        assert (content["status"]["code"], content["status"]["status"]) == (200, "SUCCESS")
        return content["status"]["msg"]

    assert status_text("a") == "OK"
    assert status_text("a", "b", "c") == "OK; ndarray is 'a' and leaves out 'b', 'c'"
