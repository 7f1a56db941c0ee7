"""Numbers in JSON to arrays."""

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.protocols.json_tensors import numeric_tensor, read_datatype
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.tensor import Datatype

NUMERIC = [each for each in Datatype if each not in (Datatype.BYTES, Datatype.BF16)]


def read(datatype: Datatype, shape: list[int], data: object) -> NDArray[Any]:
    raw = msgspec.Raw(data if isinstance(data, bytes) else json.dumps(data).encode())
    tensor = numeric_tensor("a", datatype, shape, raw, {}, "inputs[0]")
    assert tensor.data.dtype == datatype.dtype
    assert tensor.shape == tensor.data.shape
    return tensor.data


def refused(datatype: Datatype, shape: list[int], data: object) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        read(datatype, shape, data)
    assert caught.value.kind is ErrorKind.INVALID_REQUEST
    return caught.value


def numbers(datatype: Datatype) -> st.SearchStrategy[Any]:
    if datatype is Datatype.BOOL:
        return st.booleans()
    if datatype.kind == "f":
        return st.floats(width=datatype.dtype.itemsize * 8, allow_nan=False, allow_infinity=False)  # pyright: ignore
    range_ = np.iinfo(datatype.dtype)
    return st.integers(int(range_.min), int(range_.max))


@pytest.mark.parametrize("datatype", NUMERIC)
@given(data=st.data())
def test_flat_and_nested_numbers_are_the_same_array(datatype: Datatype, data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    count = int(np.prod(shape))
    flat = data.draw(st.lists(numbers(datatype), min_size=count, max_size=count))
    expected = np.array(flat, datatype.dtype).reshape(shape)
    nested = np.array(flat, object).reshape(shape).tolist()
    assert np.array_equal(read(datatype, shape, flat), expected)
    assert np.array_equal(read(datatype, shape, nested), expected)
    free = data.draw(st.integers(0, len(shape) - 1))
    open_shape = [-1 if index == free else size for index, size in enumerate(shape)]
    assert read(datatype, open_shape, flat).shape == tuple(shape)


@pytest.mark.parametrize("datatype", [each for each in NUMERIC if each.kind in "iu"])
def test_integers_end_where_their_datatype_ends(datatype: Datatype) -> None:
    limits = np.iinfo(datatype.dtype)
    assert read(datatype, [2], [int(limits.min), int(limits.max)]).tolist() == [limits.min, limits.max]
    for beyond in (int(limits.min) - 1, int(limits.max) + 1, 10**400, -(10**400)):
        for data in ([beyond], [[beyond]]):
            assert refused(datatype, [1, 1], data).path.startswith("inputs[0].data")


@pytest.mark.parametrize("datatype", [Datatype.FP16, Datatype.FP32, Datatype.FP64])
@pytest.mark.parametrize(
    "data", [[1e5000], b"[1e400]", [10**400], [[10**400]], [-1e308 * 10]], ids=lambda data: str(data)[:9]
)
def test_floating_point_numbers_out_of_range_are_refused(datatype: Datatype, data: object) -> None:
    assert refused(datatype, [1, 1], data).path.startswith("inputs[0].data")


def test_half_precision_ends_at_65504() -> None:
    assert read(Datatype.FP16, [1], [65504]).tolist() == [65504]
    assert "FP16" in refused(Datatype.FP16, [1], [70000]).message
    assert "FP32" in refused(Datatype.FP32, [1], [1e39]).message


OTHER_KINDS: list[tuple[Datatype, Any, str]] = [
        (Datatype.UINT8, [1, 2.5], "[1]"), (Datatype.UINT8, [1, 2.0], "[1]"), (Datatype.UINT8, ["1"], "[0]"),
        (Datatype.UINT8, [None], "[0]"), (Datatype.UINT8, [[1], [{}]], "[1][0]"), (Datatype.FP32, [True], "[0]"),
        (Datatype.FP32, ["1.0"], "[0]"), (Datatype.FP32, [1.0, None], "[1]"), (Datatype.BOOL, ["true"], "[0]"),
        (Datatype.BOOL, [0.0], "[0]"), (Datatype.BOOL, [2], ""), (Datatype.BOOL, [-1], ""), (Datatype.INT8, "x", ""),
        (Datatype.INT8, {"a": 1}, ""), (Datatype.INT8, 5, ""), (Datatype.INT8, None, ""), (Datatype.INT8, b"[1,", ""),
]  # fmt: skip


@pytest.mark.parametrize(("datatype", "data", "path"), OTHER_KINDS, ids=str)
def test_values_of_another_kind_are_named(datatype: Datatype, data: object, path: str) -> None:
    assert refused(datatype, [-1], data).path == f"inputs[0].data{path}"


def test_booleans_are_integers_0_and_1_and_the_other_way_round() -> None:
    assert read(Datatype.INT8, [2], [True, False]).tolist() == [1, 0]
    assert read(Datatype.BOOL, [4], [1, 0, True, False]).tolist() == [True, False, True, False]
    assert read(Datatype.FP32, [2], [1, 2.5]).tolist() == [1.0, 2.5]


@pytest.mark.parametrize(
    ("shape", "count"),
    [([2], 3), ([2, 2], 3), ([-1, 2], 3), ([-1, -1], 4), ([-2], 2), ([2, -2], 4), ([0], 1), ([0, -1], 0), ([], 2),
    ([1] * 33, 1),
     ([10**400], 1), ([2**40, 2**40], 4)],
    ids=lambda each: str(each)[:24],
)  # fmt: skip
def test_shapes_that_do_not_fit_are_refused(shape: list[int], count: int) -> None:
    assert refused(Datatype.UINT8, shape, [0] * count).path == "inputs[0].shape"


@pytest.mark.parametrize(("shape", "count"), [([0], 0), ([0, 3], 0), ([-1, 3], 0), ([], 1), ([1] * 32, 1)], ids=str)
def test_shapes_at_the_edge_are_read(shape: list[int], count: int) -> None:
    expected = tuple(0 if size == -1 else size for size in shape)
    assert read(Datatype.UINT8, shape, [0] * count).shape == expected


@pytest.mark.parametrize("name", ["", "bytes", "STRING", "UINT", "FP128", "BF 16", "BYTES "])
def test_unknown_datatypes_list_the_known_ones(name: str) -> None:
    with pytest.raises(InferenceError, match=r"Expected one of BOOL, UINT8, .*, BYTES, got") as caught:
        read_datatype(name, "inputs[0].datatype")
    assert caught.value.path == "inputs[0].datatype"


@pytest.mark.parametrize("datatype", Datatype)
def test_known_datatypes_are_read(datatype: Datatype) -> None:
    assert read_datatype(datatype.value, "") is datatype
