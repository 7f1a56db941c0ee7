"""Test GRPS tensors: every datatype in both directions, without silent changes of values."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.plugins.grps.proto import message_class
from app.plugins.grps.tensors import ELEMENTS, read_tensor, write_tensor
from tasks.inference.error import ErrorKind
from tasks.inference.tensor import BytesTensor, Datatype, Tensor, TensorSpec
from tests.support.rejection import rejects

TENSOR: Any = message_class("grps.protos.v1.GenericTensor")
NUMERIC = [datatype for datatype in Datatype if datatype is not Datatype.BYTES]


def generic(dtype: int = 7, shape: tuple[int, ...] = (1,), **fields: Any) -> Any:
    return TENSOR(**{"name": "x", "dtype": dtype, "shape": shape, **fields})


def spec(datatype: Datatype) -> TensorSpec:
    return TensorSpec(name="x", datatype=datatype, shape=(-1,))


def arrays(datatype: Datatype) -> st.SearchStrategy[NDArray[Any]]:
    """Generate arrays of any numbers of `datatype` that GRPS can carry."""
    bits = np.dtype(f"u{datatype.dtype.itemsize}")
    max_value = np.iinfo(np.int64).max if datatype is Datatype.UINT64 else np.iinfo(bits).max
    number = st.booleans() if datatype is Datatype.BOOL else st.integers(0, max_value)
    flat = st.lists(number, min_size=6, max_size=6).map(lambda values: np.array(values, bits).view(datatype.dtype))
    shapes = st.sampled_from([(6,), (2, 3), (6, 1), (1, 2, 3)])
    return st.builds(np.reshape, flat, shapes)


@pytest.mark.parametrize("datatype", NUMERIC)
@settings(max_examples=20)
@given(data=st.data())
def test_numbers_round_trip(datatype: Datatype, data: st.DataObject) -> None:
    array = data.draw(arrays(datatype))
    message = generic(dtype=0, shape=())
    message.name = ""
    write_tensor(Tensor(name="x", datatype=datatype, data=array), message)
    tensor = read_tensor(TENSOR.FromString(message.SerializeToString()), spec(datatype), "t")
    assert isinstance(tensor, Tensor)
    assert (tensor.name, tensor.datatype, tensor.shape) == ("x", datatype, array.shape)
    if datatype is Datatype.BF16:
        wide = [bits.astype(np.uint32) << 16 for bits in (tensor.data, array)]
        np.testing.assert_array_equal(wide[0].view(np.float32), wide[1].view(np.float32))
    else:
        np.testing.assert_array_equal(tensor.data, array)


@pytest.mark.parametrize(
    ("datatype_name", "values", "rounded"),
    [
        ("FP16", [0.1, 65504.0, -0.0], np.array([0.1, 65504, -0.0], np.float16).view(np.uint16)),
        # 1 + 2^-8 lies between two BF16 numbers: ties go to the even one.
        ("BF16", [1.00390625, 1.01171875, 3.14159], np.array([0x3F80, 0x3F82, 0x4049], np.uint16)),
    ],
)
def test_half_precision_numbers_are_rounded_to_nearest(datatype_name: str, values: list[float], rounded: Any) -> None:
    field, dtype = ("flat_float16", 6) if datatype_name == "FP16" else ("flat_float32", 7)
    tensor = read_tensor(generic(dtype, (3,), **{field: values}), spec(Datatype(datatype_name)), "t")
    assert isinstance(tensor, Tensor)
    np.testing.assert_array_equal(tensor.data.view(np.uint16), rounded)


@pytest.mark.parametrize(
    ("dtype", "field", "values", "declared", "bad_index"),
    [
        (1, "flat_uint8", [0, 256], None, 1),
        (1, "flat_uint8", [0, 2], Datatype.BOOL, 1),
        (2, "flat_int8", [3, -1], Datatype.UINT8, 1),
        (3, "flat_int16", [1, 2, 32768], None, 2),
        (4, "flat_int32", [65536], Datatype.UINT16, 0),
        (4, "flat_int32", [2**24 + 1], Datatype.FP32, 0),
        (5, "flat_int64", [-1], Datatype.UINT64, 0),
        (6, "flat_float16", [1.0, 65520.0], None, 1),
        (7, "flat_float32", [3.4e38], Datatype.BF16, 0),
        (7, "flat_float32", [0.5], Datatype.INT32, 0),
        (7, "flat_float32", [2.0**31], Datatype.INT32, 0),
        (8, "flat_float64", [0.1], Datatype.FP32, 0),
    ],
)
def test_number_that_the_datatype_cannot_hold_is_rejected(
    dtype: int, field: str, values: list[Any], declared: Datatype | None, bad_index: int
) -> None:
    with rejects(path=f"t.{field}[{bad_index}]"):
        read_tensor(generic(dtype, (len(values),), **{field: values}), spec(declared) if declared else None, "t")


@pytest.mark.parametrize(
    ("dtype", "field", "values", "declared"),
    [
        (1, "flat_uint8", [0, 1], Datatype.BOOL),
        (4, "flat_int32", [0, 65535], Datatype.UINT16),
        (5, "flat_int64", [0, 2**32 - 1], Datatype.UINT32),
        (7, "flat_float32", [1.0, -2.0], Datatype.INT64),
        (7, "flat_float32", [0.1, float("nan"), float("inf")], Datatype.FP64),
        (8, "flat_float64", [0.5, float("-inf")], Datatype.FP32),
    ],
)
def test_numbers_convert_to_declared_datatype(dtype: int, field: str, values: list[Any], declared: Datatype) -> None:
    tensor = read_tensor(generic(dtype, (len(values),), **{field: values}), spec(declared), "t")
    assert isinstance(tensor, Tensor)
    assert tensor.datatype is declared
    assert tensor.data.dtype == declared.dtype
    np.testing.assert_array_equal(
        tensor.data.astype(np.float64), np.array(values, ELEMENTS.stored_dtypes[field]).astype(np.float64)
    )


def test_texts_for_a_numeric_input_are_not_converted() -> None:
    assert isinstance(read_tensor(generic(9, (1,), flat_string=["1"]), spec(Datatype.FP32), "t"), BytesTensor)


@pytest.mark.parametrize(
    ("message", "path"),
    [
        (generic(99), "t.dtype"),
        (generic(7, (2,), flat_float32=[1.0]), "t.flat_float32"),
        (generic(7, (1,), flat_float32=[1.0, 2.0]), "t.flat_float32"),
        (generic(7, (4294967295, 4294967295, 4294967295), flat_float32=[]), "t.shape"),
        (generic(7, (1,), flat_float32=[1.0], flat_int8=[1]), "t.flat_int8"),
        (generic(7, (1,) * 33, flat_float32=[1.0]), "t.shape"),
        (generic(7, (0, *(4294967295,) * 4)), "t.shape"),
        (generic(9, (2,), flat_string=["a"]), "t.flat_string"),
    ],
)
def test_inconsistent_tensor_error_names_its_field(message: Any, path: str) -> None:
    with rejects(path=path):
        read_tensor(message, None, "t")


@pytest.mark.parametrize(
    ("datatype", "values"), [(Datatype.UINT64, [1, 2**63]), (Datatype.BYTES, [b"ok", b"\xff\xfe"])]
)
def test_output_without_a_wire_form_error_names_the_tensor(datatype: Datatype, values: list[Any]) -> None:
    data = np.array(values, datatype.dtype)
    with rejects("'odd' holds", kind=ErrorKind.UNSUPPORTED):
        write_tensor(Tensor(name="odd", datatype=datatype, data=data), generic(0, ()))
