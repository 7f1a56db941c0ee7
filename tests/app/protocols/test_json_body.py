"""JSON bodies: read, or refused with the place and the reason."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.protocols.chariot_v2_kserve.codec import decode
from app.protocols.chariot_v2_kserve.wire import WireRequest
from app.protocols.json_body import read_json
from app.protocols.json_parameters import read_parameters_object
from app.protocols.status import http_status
from tasks.exchange.error import ErrorKind, InferenceError

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
INPUTS: dict[str, st.SearchStrategy[Any]] = {
    "name": st.text() | JSON_VALUES,
    "datatype": st.sampled_from(["BYTES", "UINT8", "FP16", "FP32", "BOOL", "INT64"]) | JSON_VALUES,
    "shape": st.lists(st.integers(-2, 4), max_size=4) | JSON_VALUES,
    "data": st.lists(st.integers(-1, 300), max_size=8) | JSON_VALUES,
}
MORE: dict[str, st.SearchStrategy[Any]] = {"parameters": JSON_VALUES}


def refusal(body: bytes, kind: Any = WireRequest, path: str = "") -> InferenceError | None:
    """The refusal of `body`, which is the only exception there may be."""
    try:
        read_json(body, kind, path)
    except InferenceError as error:
        return error
    return None


@pytest.mark.parametrize("kind", [WireRequest, object, list[str], dict[str, msgspec.Raw], str])
@given(body=st.binary(max_size=60) | st.text(max_size=40).map(str.encode) | JSON_VALUES.map(json.dumps).map(str.encode))
def test_any_bytes_are_read_or_refused(kind: Any, body: bytes) -> None:
    error = refusal(body, kind)
    assert error is None or error.kind is ErrorKind.INVALID_REQUEST


@given(st.fixed_dictionaries(INPUTS, optional=MORE))
def test_any_input_is_decoded_or_refused_by_name(wire: dict[str, Any]) -> None:
    body = json.dumps({"inputs": [wire]}).encode()
    try:
        decoded = decode(body, model_name="m", model_version=None, request_id="r")
    except InferenceError as error:
        caught = error
        assert caught.kind is ErrorKind.INVALID_REQUEST
    else:
        assert decoded.inputs[0].name == wire["name"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "an empty body"), (b" \r\n\t", "an empty body"), (b'"\xff"', "UTF-8"), (b"[" * 100_000, ""),
        (b"{", "not valid JSON"),
        (b'{"a": 1,}', "not valid JSON"), (b"{'a': 1}", "not valid JSON"), (b"{} {}", "not valid JSON"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
    ],
    ids=lambda each: str(each)[:16],
)  # fmt: skip
def test_what_is_not_json_says_how(body: bytes, said: str) -> None:
    error = refusal(body, object, "body")
    assert error is not None
    assert said in error.message
    assert error.path == "body"


@pytest.mark.parametrize(
    ("body", "path", "said"),
    [
        (b'{"a": [1, {"b": NaN}]}', "a[1].b", "finite number, got nan"), (b"[[1, Infinity]]", "[0][1]", "got inf"),
        (b'{"a": -Infinity}', "a", "got -inf"), (b"NaN", "", "got nan"),
        (b'{"a": ["x", "\\ud83d"]}', "a[1]", "surrogate"),
        (b'{"a": {"\\udc00": 1}}', "a", "surrogate"),
        (b'{"a": "\\ud83d\\ude00", "b": NaN}', "b", "got nan"),
    ],
)  # fmt: skip
def test_near_json_is_refused_with_its_place(body: bytes, path: str, said: str) -> None:
    error = refusal(body, object)
    assert error is not None
    assert (error.path, said in error.message) == (path, True)
    inside = refusal(body, object, "x")
    assert inside is not None
    assert inside.path.startswith("x")


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b"5", ""), (b"{}", ""), (b'{"inputs": 5}', "inputs"), (b'{"inputs": [5]}', "inputs[0]"),
        (b'{"inputs": [], "id": 5}', "id"), (b'{"inputs": [], "parameters": []}', "parameters"),
        (b'{"inputs": [{"name": "a", "datatype": "BYTES", "shape": [1.5], "data": []}]}', "inputs[0].shape[0]"),
    ],
)  # fmt: skip
def test_another_type_names_its_field(body: bytes, path: str) -> None:
    error = refusal(body)
    assert error is not None
    assert error.path == path


def test_the_last_of_two_equal_names_counts() -> None:
    assert read_json(b'{"inputs": 5, "inputs": []}', object) == {"inputs": []}


def test_parameters_are_values_and_metadata_is_the_bytes_it_came_in() -> None:
    raw = read_json(b'{"top_k": 5, "metadata": {"a" : 1.10 }, "labels": ["x"]}', dict[str, msgspec.Raw])
    read = read_parameters_object(raw, "parameters")
    assert {name: value for name, value in read.items() if name != "metadata"} == {"top_k": 5, "labels": ["x"]}
    metadata = read["metadata"]
    assert isinstance(metadata, msgspec.Raw)
    assert bytes(metadata) == b'{"a" : 1.10 }'


def test_no_parameters_are_no_parameters() -> None:
    assert read_parameters_object(None, "parameters") == {}
    assert read_parameters_object({}, "parameters") == {}


def test_a_parameter_that_cannot_be_read_is_named() -> None:
    with pytest.raises(InferenceError) as caught:
        read_parameters_object({"a": msgspec.Raw(b"1"), "b": msgspec.Raw(b"1e999")}, "inputs[0].parameters")
    assert caught.value.path == "inputs[0].parameters.b"


@pytest.mark.parametrize("kind", ErrorKind)
def test_every_kind_of_error_has_a_status_that_fits(kind: ErrorKind) -> None:
    of_the_server = {
        ErrorKind.MODEL_FAILED,
        ErrorKind.INTERNAL,
        ErrorKind.MODEL_NOT_READY,
        ErrorKind.DEADLINE_EXCEEDED,
    }
    assert http_status(kind) // 100 == (5 if kind in of_the_server else 4)


def test_statuses_are_those_that_clients_act_on() -> None:
    assert http_status(ErrorKind.INVALID_REQUEST) == 400
    assert http_status(ErrorKind.MODEL_NOT_FOUND) == 404
    assert http_status(ErrorKind.TOO_LARGE) == 413
    assert http_status(ErrorKind.MODEL_NOT_READY) == 503
