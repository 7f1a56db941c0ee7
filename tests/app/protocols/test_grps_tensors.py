"""Tensors of GRPS: every datatype both ways, and nothing changed on the way that was not asked to be."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.proto import message_class
from app.protocols.grps.tensors import FLAT_FIELDS, read_tensor, wire_type, write_tensor
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.tensor import BytesTensor, Datatype, Tensor, TensorSpec

TENSOR: Any = message_class("grps.protos.v1.GenericTensor")
NUMERIC = [each for each in Datatype if each is not Datatype.BYTES]
CARRIED = {"BOOL": "DT_UINT8", "UINT16": "DT_INT32", "UINT32": "DT_INT64", "UINT64": "DT_INT64", "BF16": "DT_FLOAT32"}


def generic(dtype: int = 7, shape: tuple[int, ...] = (1,), **fields: Any) -> Any:
    return TENSOR(**{"name": "x", "dtype": dtype, "shape": shape, **fields})


def spec(datatype: Datatype) -> TensorSpec:
    return TensorSpec(name="x", datatype=datatype, shape=(-1,))


def refusal(message: Any, declared: Datatype | None = None) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        read_tensor(message, None if declared is None else spec(declared), "t")
    assert caught.value.kind is ErrorKind.INVALID_REQUEST
    return caught.value


def arrays(datatype: Datatype) -> st.SearchStrategy[NDArray[Any]]:
    """Any numbers of a datatype that GRPS can carry, as arrays of up to two dimensions."""
    bits = np.dtype(f"u{datatype.dtype.itemsize}")
    most = np.iinfo(np.int64).max if datatype is Datatype.UINT64 else np.iinfo(bits).max
    number = st.booleans() if datatype is Datatype.BOOL else st.integers(0, most)
    flat = st.lists(number, min_size=6, max_size=6).map(lambda values: np.array(values, bits).view(datatype.dtype))
    shapes = st.sampled_from([(6,), (2, 3), (6, 1), (1, 2, 3)])
    return st.builds(_reshaped, flat, shapes)


def _reshaped(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    return array.reshape(shape)


def test_every_datatype_has_a_type_on_the_wire() -> None:
    for each in Datatype:
        wire = wire_type(each)
        assert FLAT_FIELDS[wire.field] is wire
        if each in CARRIED:
            assert wire.name == CARRIED[each]
        else:
            assert wire.datatype is each


@pytest.mark.parametrize("datatype", NUMERIC)
@given(data=st.data())
def test_numbers_come_back_as_they_were(datatype: Datatype, data: st.DataObject) -> None:
    array = data.draw(arrays(datatype))
    message = generic(dtype=0, shape=())
    message.name = ""
    write_tensor(Tensor(name="x", datatype=datatype, data=array), message)
    found = read_tensor(TENSOR.FromString(message.SerializeToString()), spec(datatype), "t")
    assert isinstance(found, Tensor)
    assert (found.name, found.datatype, found.shape) == ("x", datatype, array.shape)
    if datatype is Datatype.BF16:
        wide = [each.astype(np.uint32) << 16 for each in (found.data, array)]
        np.testing.assert_array_equal(wide[0].view(np.float32), wide[1].view(np.float32))
    else:
        np.testing.assert_array_equal(found.data, array)


def test_texts_come_back_as_they_were() -> None:
    data = np.empty((1, 2), object)
    data[:] = ["Åsa".encode(), b""]
    message = generic(dtype=0, shape=())
    write_tensor(Tensor(name="words", datatype=Datatype.BYTES, data=data), message)
    found = read_tensor(message, None, "t")
    assert isinstance(found, BytesTensor)
    assert (found.name, found.shape, [each.text() for each in found.elements]) == ("words", (1, 2), ["Åsa", ""])


@pytest.mark.parametrize(
    ("sent", "wide", "rounded"),
    [
        ("FP16", [0.1, 65504.0, -0.0], np.array([0.1, 65504, -0.0], np.float16).view(np.uint16)),
        # 1 + 2^-8 lies between two BF16 numbers: ties go to the even one.
        ("BF16", [1.00390625, 1.01171875, 3.14159], np.array([0x3F80, 0x3F82, 0x4049], np.uint16)),
    ],
)
def test_what_has_fewer_digits_is_rounded_to_the_nearest(sent: str, wide: list[float], rounded: Any) -> None:
    field, dtype = ("flat_float16", 6) if sent == "FP16" else ("flat_float32", 7)
    found = read_tensor(generic(dtype, (3,), **{field: wide}), spec(Datatype(sent)), "t")
    assert isinstance(found, Tensor)
    np.testing.assert_array_equal(found.data.view(np.uint16), rounded)


@pytest.mark.parametrize(
    ("dtype", "field", "values", "declared", "wrong"),
    [
        (1, "flat_uint8", [0, 256], None, 1),
        (1, "flat_uint8", [0, 200], Datatype.INT8, 1),
        (1, "flat_uint8", [0, 2], Datatype.BOOL, 1),
        (2, "flat_int8", [-129], None, 0),
        (2, "flat_int8", [3, -1], Datatype.UINT8, 1),
        (3, "flat_int16", [1, 2, 32768], None, 2),
        (4, "flat_int32", [65536], Datatype.UINT16, 0),
        (4, "flat_int32", [-1], Datatype.UINT16, 0),
        (4, "flat_int32", [2**24 + 1], Datatype.FP32, 0),
        (5, "flat_int64", [2**32], Datatype.UINT32, 0),
        (5, "flat_int64", [-1], Datatype.UINT64, 0),
        (6, "flat_float16", [1.0, 65520.0], None, 1),
        (7, "flat_float32", [3.4e38], Datatype.BF16, 0),
        (7, "flat_float32", [0.5], Datatype.INT32, 0),
        (7, "flat_float32", [float("nan")], Datatype.INT32, 0),
        (7, "flat_float32", [2.0**31], Datatype.INT32, 0),
        (8, "flat_float64", [0.1], Datatype.FP32, 0),
        (8, "flat_float64", [1e300], Datatype.FP32, 0),
    ],
)
def test_a_number_that_would_be_changed_is_refused(
    dtype: int, field: str, values: list[Any], declared: Datatype | None, wrong: int
) -> None:
    error = refusal(generic(dtype, (len(values),), **{field: values}), declared)
    assert error.path == f"t.{field}[{wrong}]"


@pytest.mark.parametrize(
    ("dtype", "field", "values", "declared"),
    [
        (1, "flat_uint8", [0, 1], Datatype.BOOL),
        (1, "flat_uint8", [0, 255], Datatype.FP16),
        (4, "flat_int32", [0, 65535], Datatype.UINT16),
        (5, "flat_int64", [0, 2**32 - 1], Datatype.UINT32),
        (7, "flat_float32", [1.0, -2.0], Datatype.INT64),
        (7, "flat_float32", [0.1, float("nan"), float("inf")], Datatype.FP64),
        (8, "flat_float64", [0.5, float("-inf")], Datatype.FP32),
    ],
)
def test_numbers_come_to_what_the_model_declares(dtype: int, field: str, values: list[Any], declared: Datatype) -> None:
    found = read_tensor(generic(dtype, (len(values),), **{field: values}), spec(declared), "t")
    assert isinstance(found, Tensor)
    assert found.datatype is declared
    assert found.data.dtype == declared.dtype
    np.testing.assert_array_equal(
        found.data.astype(np.float64), np.array(values, FLAT_FIELDS[field].held).astype(np.float64)
    )


def test_texts_for_a_model_of_numbers_are_left_to_the_model() -> None:
    assert isinstance(read_tensor(generic(9, (1,), flat_string=["1"]), spec(Datatype.FP32), "t"), BytesTensor)


@pytest.mark.parametrize(
    ("message", "path"),
    [
        (generic(0), "t.dtype"),
        (generic(99), "t.dtype"),
        (generic(7, (2,), flat_float32=[1.0]), "t.flat_float32"),
        (generic(7, (1,), flat_float32=[1.0, 2.0]), "t.flat_float32"),
        (generic(7, (4294967295, 4294967295, 4294967295), flat_float32=[]), "t.flat_float32"),
        (generic(7, (1,), flat_float32=[1.0], flat_int8=[1]), "t.flat_int8"),
        (generic(7, (1,) * 33, flat_float32=[1.0]), "t.shape"),
        (generic(9, (2,), flat_string=["a"]), "t.flat_string"),
    ],
)
def test_what_does_not_fit_together_is_refused(message: Any, path: str) -> None:
    assert refusal(message).path == path


def test_sizes_that_cannot_be_counted_are_refused() -> None:
    huge = (0, *(4294967295,) * 4)
    assert refusal(generic(7, huge)).path == "t.shape"


@pytest.mark.parametrize(
    ("datatype", "values"), [(Datatype.UINT64, [1, 2**63]), (Datatype.BYTES, [b"ok", b"\xff\xfe"])]
)
def test_an_answer_that_has_no_form_is_refused_by_name(datatype: Datatype, values: list[Any]) -> None:
    data = np.array(values, datatype.dtype)
    with pytest.raises(InferenceError, match="'odd' holds") as caught:
        write_tensor(Tensor(name="odd", datatype=datatype, data=data), generic(0, ()))
    assert caught.value.kind is ErrorKind.UNSUPPORTED
