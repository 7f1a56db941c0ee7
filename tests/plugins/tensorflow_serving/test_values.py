"""Test nested values as tensors: fast reading and the error check agree, and so do rows and columns; and as JSON."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from app.core.engine.models.servable import Servable
from app.plugins.tensorflow_serving.predict_tensors import TensorFormat, encode, read_tensors
from app.plugins.tensorflow_serving.signatures import Method, Signature, find_signature
from app.plugins.tensorflow_serving.values import read_object, read_tensor
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tasks.inference.response import InferenceOutput, InferenceResponse
from tasks.inference.tensor import Datatype, Tensor, TensorSpec
from tasks.task import TaskType
from tasks.tensor_inference import TensorInference, Tensors
from tests.support.models.fake_models import stand_in_metadata
from tests.support.rejection import rejects

READABLE = [datatype for datatype in Datatype if datatype not in (Datatype.FP16, Datatype.BF16, Datatype.UINT16)]

LEAVES: Any = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(2**65), 2**65),
    st.floats(),
    st.text(max_size=3),
    st.just({"b64": "YWJj"}),
    st.just({"b64": "?"}),
    st.just({"a": 1}),
)
NESTED: Any = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3), max_leaves=5)


def signature(**inputs: Datatype) -> Signature:
    specs = [TensorSpec(name=name, datatype=datatype, shape=(-1,)) for name, datatype in inputs.items()]
    servable = Servable(TensorInference(specs, specs), lambda _: [], stand_in_metadata(TaskType.TENSOR), {})
    return find_signature(servable, "", Method.PREDICT)


@settings(max_examples=50)
@given(st.sampled_from(READABLE), NESTED)
def test_value_is_read_or_rejected_with_its_path(datatype: Datatype, value: object) -> None:
    try:
        tensor = read_tensor("x", datatype, value)
    except InferenceError as error:
        failure = error
    else:
        assert tensor.shape == np.array(value, object if datatype is Datatype.BYTES else None).shape
        return
    assert failure.kind is ErrorKind.INVALID_REQUEST
    assert failure.path.startswith("x")


@given(arrays(np.int64, array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=3), elements=st.integers(-99, 99)))
def test_rows_and_columns_of_one_input_agree(data: Any) -> None:
    nested = data.tolist()
    model_signature = signature(x=Datatype.INT64)
    bodies: list[dict[str, Any]] = [
        {"instances": nested},
        {"instances": [{"x": row} for row in nested]},
        {"inputs": nested},
        {"inputs": {"x": nested}},
    ]
    results = [read_tensors(body, model_signature) for body in bodies]
    assert [form for _, form in results] == [TensorFormat.ROW] * 2 + [TensorFormat.COLUMN] * 2
    for tensors, _ in results:
        assert isinstance(tensor := tensors["x"], Tensor)
        assert tensor.data.tolist() == nested


def test_model_without_inputs_is_rejected() -> None:
    with rejects("Expected a model with inputs, this one has none"):
        read_tensors({"instances": [1]}, signature())


def test_more_than_32_dimensions_are_rejected() -> None:
    value: Any = 1.0
    for _ in range(33):
        value = [value]
    for body in ({"instances": value}, {"inputs": value}):
        with rejects("Expected at most 32 dimensions, got 33"):
            read_tensors(body, signature(x=Datatype.FP32))


def test_bytes_after_the_first_value_are_ignored() -> None:
    assert read_object(b'{"a": 1} \xff') == {"a": 1}


def test_body_nested_deeper_than_python_recurses_is_rejected() -> None:
    with rejects("^The body is not valid JSON: maximum recursion depth exceeded"):
        read_object(b'{"a": ' + b"[" * 100_000)


def test_body_nested_deeper_than_the_limit_is_rejected() -> None:
    with pytest.raises(InferenceError, match="4 deep"):
        read_object(b'{"a": [[[[[1]]]]]}', Limits(max_json_depth=4))


@pytest.mark.parametrize("digits", [4301, 1_000_000])
@pytest.mark.parametrize("form", [b'{"instances": [%s]}', b'{"instances": [NaN, %s]}'])
def test_number_with_too_many_digits_is_rejected(digits: int, form: bytes) -> None:
    with pytest.raises(InferenceError, match="too big"):
        read_object(form % (b"1" * digits))


def response(*tensors: Tensor) -> InferenceResponse:
    output = InferenceOutput(name="", predictions=[Tensors(tensors)])
    return InferenceResponse(id="", model_name="m", model_version="1", outputs=[output])


def tensor(data: Any, datatype: Datatype = Datatype.FP32, name: str = "y") -> Tensor:
    return Tensor(name=name, datatype=datatype, data=np.array(data, datatype.dtype))


UNEVEN = [tensor([1, 2]), tensor([1, 2, 3], name="z")]


@pytest.mark.parametrize(
    ("tensors", "message"), [([tensor(1.0)], "no common first dimension"), (UNEVEN, r"'y' \[2\], 'z' \[3\]")]
)
def test_outputs_without_a_common_first_dimension_have_no_rows(tensors: list[Tensor], message: str) -> None:
    with rejects(message):
        encode(response(*tensors), TensorFormat.ROW)


def test_outputs_without_rows_are_no_predictions() -> None:
    empty = [tensor(np.zeros((0, 3)), name=name) for name in ("y", "z")]
    assert json.loads(encode(response(*empty), TensorFormat.ROW)) == {"predictions": []}
