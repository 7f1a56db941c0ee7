"""Test GRPS tensors: every datatype in both directions, without silent changes of values."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.plugins.grps.proto import message_class
from app.plugins.grps.tensors import read_tensor, write_tensor
from tasks.inference.error import ErrorKind
from tasks.inference.tensor import Datatype, Tensor, TensorSpec
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


@given(st.sampled_from(NUMERIC), st.data())
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
    ("datatype", "values"), [(Datatype.UINT64, [1, 2**63]), (Datatype.BYTES, [b"ok", b"\xff\xfe"])]
)
def test_output_without_a_wire_form_error_names_the_tensor(datatype: Datatype, values: list[Any]) -> None:
    data = np.array(values, datatype.dtype)
    with rejects("'odd' holds", kind=ErrorKind.UNSUPPORTED):
        write_tensor(Tensor(name="odd", datatype=datatype, data=data), generic(0, ()))
