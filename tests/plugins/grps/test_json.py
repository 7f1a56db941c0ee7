"""Test GRPS messages in JSON: round trips, and errors that name the field."""

import json
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from google.protobuf.json_format import MessageToDict, MessageToJson, Parse
from hypothesis import given
from hypothesis import strategies as st

from app.core.wire.protobuf_limits import parse_message
from app.plugins.grps.json_messages import encode_json, encode_streamed, nested_numbers, read_json_message
from app.plugins.grps.messages import GrpsMessage, with_success_status
from app.plugins.grps.tensors import ELEMENTS as FIELDS
from app.plugins.grps.tensors import dtype_name
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tasks.inference.tensor import Datatype

NAMES = st.text(max_size=8)
FLOATS = st.floats(width=32)
# protobuf rounds the largest floats when it writes them, and then cannot read them. This server can, in tensors.
FLOATS_FOR_PROTOBUF = FLOATS.filter(lambda number: not math.isfinite(number) or abs(number) < 1e38)
ELEMENTS: dict[str, st.SearchStrategy[Any]] = {
    "u": st.integers(0, 2**32 - 1),
    "i": st.integers(-(2**31), 2**31 - 1),
    "f": FLOATS,
    "O": st.text(max_size=4),
}


@st.composite
def tensors(draw: st.DrawFn) -> dict[str, Any]:
    datatype, field = draw(st.sampled_from(list(FIELDS.names.items())))
    is_int64 = datatype is Datatype.INT64
    element = st.integers(-(2**63), 2**63 - 1) if is_int64 else ELEMENTS[FIELDS.stored_dtypes[field].kind]
    values = draw(st.lists(element, max_size=4))
    return {"name": draw(NAMES), "dtype": dtype_name(datatype), "shape": [len(values)], field: values}


def maps(value: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(NAMES, value, max_size=2)


GMAPS = st.fixed_dictionaries(
    {},
    optional={
        "s_s": maps(st.text(max_size=8)),
        "s_b": maps(st.binary(max_size=8)),
        "s_i32": maps(ELEMENTS["i"]),
        "s_i64": maps(st.integers(-(2**63), 2**63 - 1)),
        "s_f": maps(FLOATS_FOR_PROTOBUF),
        "s_d": maps(st.floats()),
    },
)


def message_of(kind: str, data: Any, model: str) -> Any:
    return GrpsMessage(model=model, **{kind: data})


MESSAGES = st.one_of(
    st.builds(message_of, st.just("str_data"), st.text(), NAMES),
    st.builds(
        message_of, st.just("gtensors"), st.fixed_dictionaries({"tensors": st.lists(tensors(), max_size=3)}), NAMES
    ),
    st.builds(message_of, st.just("gmap"), GMAPS, NAMES),
)


def assert_equal_messages(actual: Any, expected: Any) -> None:
    """Assert that two messages are equal, where NaN equals NaN."""
    assert MessageToDict(actual) == MessageToDict(expected)


@given(MESSAGES)
def test_json_is_compatible_with_protobuf_in_both_directions(message: Any) -> None:
    copy = parse_message(GrpsMessage, message.SerializeToString(), Limits())
    assert_equal_messages(Parse(encode_json(copy), GrpsMessage()), message)
    text = MessageToJson(message, preserving_proto_field_name=True)
    assert_equal_messages(read_json_message(text.encode())[0], message)


def test_largest_floats_are_read_as_protobuf_writes_them() -> None:
    largest = float(np.finfo(np.float32).max)
    message = GrpsMessage(gtensors={"tensors": [{"flat_float32": [largest, -largest]}]})
    assert_equal_messages(
        read_json_message(MessageToJson(message, preserving_proto_field_name=True).encode())[0], message
    )


def test_stream_message_is_indented_by_two_spaces() -> None:
    message = with_success_status(GrpsMessage(str_data="å"))
    expected = {"status": {"code": 200, "msg": "OK", "status": "SUCCESS"}, "str_data": "å"}
    assert encode_streamed(message).decode() == json.dumps(expected, indent=2, ensure_ascii=False)


def error_for(body: object) -> InferenceError:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(InferenceError) as caught:
        read_json_message(content)
    assert caught.value.kind is ErrorKind.INVALID_REQUEST
    assert len(str(caught.value)) < 400
    return caught.value


def tensor(**fields: object) -> dict[str, Any]:
    return {"gtensors": {"tensors": [{}, fields]}}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "empty body"),
        (b"[1]", ""),
        (b'{"str_data": "a"', ""),
        (b'{"str_data": "\xff"}', ""),
        (b'{"gmap": {"s_d": {"a": NaN}}}', "gmap.s_d.a"),
        (b'{"ndarray": [1e999]}', "[...][0]"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", ""),
        ({"foo": 1}, "foo"),
        ({"gmap": 3}, "gmap: "),
        ({"gmap": {"s_s": {"a": "b", "c": 3}}}, "s_s: "),
        ({"gmap": {"sI32": {"a": 1.5}}}, "gmap.sI32[a]: "),
        ({"gtensors": {"tensors": [3]}}, "tensors: "),
        ({"str_data": "a", "streaming": "true"}, "streaming: Expected true or false, got 'true'"),
        (tensor(dtype=[1]), "tensors.dtype: "),
        (tensor(flat_int32=[*range(1000), "x", 1]), "flat_int32: "),
        ({"status": {"code": 200, "foo": 1}}, "foo"),
        ({"model": 7}, "model"),
        ({"str_data": ["x" * 10_000]}, "str_data"),
        ({"x" * 1000: 1}, "xxx..."),
        ({"gtensors": {"tensors": ["name"]}}, "gtensors.tensors[0]: "),
        ({"gtensors": {"tensor": []}}, '"tensor"'),
        (tensor(flat_double=[1.0]), "gtensors.tensors[1]: Message type "),
        (tensor(dtype="DT_DOUBLE"), "gtensors.tensors[1].dtype"),
        (tensor(shape=[1.5]), "gtensors.tensors[1].shape[0]"),
        (tensor(flat_uint8=[1, -1]), "flat_uint8"),
        (tensor(flat_uint8=[1, True]), "gtensors.tensors[1].flat_uint8[1]"),
        (tensor(flat_int8=[0.5]), "gtensors.tensors[1].flat_int8[0]"),
        (tensor(flat_int32=[None]), "gtensors.tensors[1].flat_int32[0]"),
        (tensor(flat_int64=["1", "a"]), "flat_int64"),
        (tensor(flat_int64=["1", "2", "9223372036854775808"]), "flat_int64"),
        (tensor(flat_float32=[1e39]), "gtensors.tensors[1].flat_float32[0]"),
        (tensor(flat_float32=["one"]), "gtensors.tensors[1].flat_float32[0]"),
        (tensor(flat_string=[1]), "flat_string"),
        ({"gmap": {"s_x": {}}}, "s_x"),
        ({"gmap": {"s_i32": {"a": 2**31}}}, "s_i32"),
        ({"str_data": "a", "strData": "b"}, "data_oneof"),
        ({"ndarray": [1], "gtensors": {}}, "ndarray"),
        ({"bin_data": "YQ=="}, "bin_data"),
        ({"binData": "YQ=="}, "bin_data"),
    ],
)
def test_invalid_message_error_names_its_field(body: object, field: str) -> None:
    assert field in str(error_for(body))


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


@given(st.integers(0, 3).flatmap(lambda rank: st.tuples(*[st.integers(1, 3)] * rank)), st.data())
def test_nested_numbers_become_an_array_of_the_same_shape(shape: tuple[int, ...], data: st.DataObject) -> None:
    size = math.prod(shape)
    array = np.array(data.draw(st.lists(FLOATS.filter(np.isfinite), min_size=size, max_size=size)), np.float32)
    array_read = nested_numbers(array.reshape(shape).tolist(), "ndarray")
    assert array_read.dtype == np.float32
    np.testing.assert_array_equal(array_read, array.reshape(shape))


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("1", "ndarray"),
        (True, "ndarray"),
        ({}, "ndarray"),
        ([1, None], "ndarray[1]"),
        ([[1], 2], "ndarray[0]"),
        ([[1, 2], [3]], "ndarray[1]"),
        ([[[1], [2]], [[3], [4, 5]]], "ndarray[1][1]"),
        ([[1, 2], [3, "x"]], "ndarray[1][1]"),
        ([[1, 2], [3, [4]]], "ndarray[1][1]"),
        ([[], [1]], "ndarray[1]"),
        ([1, 4e38], "ndarray[1]"),
        ([10**400], "ndarray"),
    ],
)
def test_invalid_array_error_names_the_element(value: object, path: str) -> None:
    with pytest.raises(InferenceError) as caught:
        nested_numbers(value, "ndarray")
    assert caught.value.path == path


def test_more_than_32_array_dimensions_are_rejected() -> None:
    value: object = 1
    for _ in range(40):
        value = [value]
    with pytest.raises(InferenceError, match="32 dimensions"):
        nested_numbers(value, "ndarray")
    assert nested_numbers([], "ndarray").shape == (0,)


def test_status_names_the_tensors_that_an_ndarray_leaves_out() -> None:
    def message_with(*names: str) -> Any:
        tensors = [{"name": name, "dtype": 7, "shape": [1], "flat_float32": [1]} for name in names]
        return with_success_status(GrpsMessage(gtensors={"tensors": tensors}))

    def status_text(*names: str) -> str:
        content = json.loads(encode_json(message_with(*names), as_ndarray=True))
        assert content["ndarray"] == [1.0]
        assert (content["status"]["code"], content["status"]["status"]) == (200, "SUCCESS")
        return content["status"]["msg"]

    assert status_text("a") == "OK"
    assert status_text("a", "b", "c") == "OK; ndarray is 'a' and leaves out 'b', 'c'"
