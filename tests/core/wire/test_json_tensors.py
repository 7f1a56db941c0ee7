"""Test conversion of JSON numbers to arrays."""

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.core.wire.json_tensors import (
    flatten_rows,
    index_path,
    numeric_tensor,
    read_datatype,
    shape_and_values,
    to_bfloat16_bits,
)
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.tensor import Datatype, from_bfloat16_bits
from tests.support.rejection import rejects

NUMERIC = [datatype for datatype in Datatype if datatype not in (Datatype.BYTES, Datatype.BF16)]


def read(datatype: Datatype, shape: list[int], data: object) -> NDArray[Any]:
    raw = msgspec.Raw(data if isinstance(data, bytes) else json.dumps(data).encode())
    tensor = numeric_tensor("a", datatype, shape, raw, {}, "inputs[0]")
    assert tensor.data.dtype == datatype.dtype
    assert tensor.shape == tensor.data.shape
    return tensor.data


def error_for(datatype: Datatype, shape: list[int], data: object) -> InferenceError:
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


@given(st.sampled_from(NUMERIC), st.data())
@settings(max_examples=200)
def test_flat_and_nested_numbers_give_the_same_array(datatype: Datatype, data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    count = int(np.prod(shape))
    flat = data.draw(st.lists(numbers(datatype), min_size=count, max_size=count))
    expected = np.array(flat, datatype.dtype).reshape(shape)
    nested = np.array(flat, object).reshape(shape).tolist()
    assert np.array_equal(read(datatype, shape, flat), expected)
    assert np.array_equal(read(datatype, shape, nested), expected)
    free_index = data.draw(st.integers(0, len(shape) - 1))
    free_shape = [-1 if index == free_index else size for index, size in enumerate(shape)]
    assert read(datatype, free_shape, flat).shape == tuple(shape)


@pytest.mark.parametrize("datatype", [datatype for datatype in NUMERIC if datatype.kind in "iu"])
def test_integers_out_of_the_range_of_the_datatype_are_rejected(datatype: Datatype) -> None:
    limits = np.iinfo(datatype.dtype)
    assert read(datatype, [2], [int(limits.min), int(limits.max)]).tolist() == [limits.min, limits.max]
    for outside in (int(limits.min) - 1, int(limits.max) + 1, 10**400, -(10**400)):
        for data in ([outside], [[outside]]):
            assert error_for(datatype, [1, 1], data).path.startswith("inputs[0].data")


@pytest.mark.parametrize("datatype", [Datatype.FP16, Datatype.FP32, Datatype.FP64])
@pytest.mark.parametrize(
    "data", [[1e5000], b"[1e400]", [10**400], [[10**400]], [-1e308 * 10]], ids=lambda data: str(data)[:9]
)
def test_floating_point_numbers_out_of_range_are_rejected(datatype: Datatype, data: object) -> None:
    assert error_for(datatype, [1, 1], data).path.startswith("inputs[0].data")


def test_largest_fp16_number_is_65504() -> None:
    assert read(Datatype.FP16, [1], [65504]).tolist() == [65504]
    assert "FP16" in error_for(Datatype.FP16, [1], [70000]).message
    assert "FP32" in error_for(Datatype.FP32, [1], [1e39]).message


WRONG_TYPES: list[tuple[Datatype, Any, str]] = [
        (Datatype.UINT8, [1, 2.5], "[1]"), (Datatype.UINT8, [1, 2.0], "[1]"), (Datatype.UINT8, ["1"], "[0]"),
        (Datatype.UINT8, [None], "[0]"), (Datatype.UINT8, [[1], [{}]], "[1][0]"), (Datatype.FP32, [True], "[0]"),
        (Datatype.FP32, ["1.0"], "[0]"), (Datatype.FP32, [1.0, None], "[1]"), (Datatype.BOOL, ["true"], "[0]"),
        (Datatype.BOOL, [0.0], "[0]"), (Datatype.BOOL, [2], ""), (Datatype.BOOL, [-1], ""), (Datatype.INT8, "x", ""),
        (Datatype.INT8, [1, [2]], ""), (Datatype.INT8, {"a": 1}, ""),
        (Datatype.INT8, 5, ""), (Datatype.INT8, None, ""), (Datatype.INT8, b"[1,", ""),
]  # fmt: skip


@pytest.mark.parametrize(("datatype", "data", "path"), WRONG_TYPES, ids=str)
def test_value_of_wrong_type_error_names_its_path(datatype: Datatype, data: object, path: str) -> None:
    assert error_for(datatype, [-1], data).path == f"inputs[0].data{path}"


def test_booleans_and_integers_0_and_1_convert_both_ways() -> None:
    assert read(Datatype.INT8, [2], [True, False]).tolist() == [1, 0]
    assert read(Datatype.BOOL, [4], [1, 0, True, False]).tolist() == [True, False, True, False]
    assert read(Datatype.FP32, [2], [1, 2.5]).tolist() == [1.0, 2.5]


@pytest.mark.parametrize(
    ("shape", "count"),
    [([2], 3), ([2, 2], 3), ([-1, 2], 3), ([-1, -1], 4), ([-2], 2), ([2, -2], 4), ([0], 1), ([0, -1], 0), ([], 2),
    ([1] * 33, 1),
     ([10**400], 1), ([2**40, 2**40], 4), ([0, 2**63], 0), ([2**70, 0], 0)],
    ids=lambda value: str(value)[:24],
)  # fmt: skip
def test_shape_that_does_not_match_the_data_is_rejected(shape: list[int], count: int) -> None:
    assert error_for(Datatype.UINT8, shape, [0] * count).path == "inputs[0].shape"


@pytest.mark.parametrize(("shape", "count"), [([0], 0), ([0, 3], 0), ([-1, 3], 0), ([], 1), ([1] * 32, 1)], ids=str)
def test_edge_case_shapes_are_accepted(shape: list[int], count: int) -> None:
    expected = tuple(0 if size == -1 else size for size in shape)
    assert read(Datatype.UINT8, shape, [0] * count).shape == expected


@pytest.mark.parametrize("name", ["", "bytes", "STRING", "UINT", "FP128", "BF 16", "BYTES "])
def test_only_known_datatypes_are_read(name: str) -> None:
    with rejects(r"Expected one of BOOL, UINT8, .*, BYTES, got", path="inputs[0].datatype"):
        read_datatype(name, "inputs[0].datatype")
    assert [read_datatype(datatype.value, "") for datatype in Datatype] == [*Datatype]


@given(st.integers(0, 2**16 - 1).filter(lambda bits: bits & 0x7F80 != 0x7F80 or bits & 0x7F == 0))
def test_bf16_bits_round_trip(bits: int) -> None:
    assert to_bfloat16_bits(from_bfloat16_bits(np.array([bits], np.uint16))).tolist() == [bits]


@given(st.floats(-(2.0**127), 2.0**127, width=32).filter(lambda value: abs(value) >= 2.0**-126))
def test_rounding_error_is_at_most_half_a_unit_in_the_last_place(value: float) -> None:
    (rounded,) = from_bfloat16_bits(to_bfloat16_bits(np.array([value], np.float32))).tolist()
    assert abs(rounded - value) <= abs(value) * 2**-8


@pytest.mark.parametrize(
    ("value", "bits"),
    [(1.00390625, 0x3F80), (1.01171875, 0x3F82), (3.4e38, 0x7F80), (-np.inf, 0xFF80), (np.nan, 0x7FC0)],
)
def test_ties_round_to_even_and_overflow_is_infinite(value: float, bits: int) -> None:
    assert to_bfloat16_bits(np.array([value], np.float32)).tolist() == [bits]


SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=5)


@given(SHAPES)
def test_even_rows_have_the_shape_and_values_of_numpy(shape: list[int]) -> None:
    array = np.arange(int(np.prod(shape))).reshape(shape)
    assert shape_and_values(array.tolist(), "p") == (tuple(shape), array.ravel().tolist())
    assert flatten_rows(array.tolist()) == array.ravel().tolist()


@pytest.mark.parametrize(
    ("rows", "path", "values"),
    [
        ([[1, 2], [3]], "p[1]", [1, 2, 3]),
        ([[[1], [2]], [[3], [4, 5]]], "p[1][1]", [1, 2, 3, 4, 5]),
        ([[], [1]], "p[1]", [1]),
    ],
)
def test_ragged_rows_are_flattened_but_have_no_shape(rows: list[Any], path: str, values: list[int]) -> None:
    assert flatten_rows(rows) == values
    with rejects(path=path):
        shape_and_values(rows, "p")


@pytest.mark.parametrize("rows", [[1, [2]], [[1], 2], [{}, "a"], []])
def test_mixed_or_empty_rows_are_not_flattened(rows: list[Any]) -> None:
    assert flatten_rows(rows) == rows
    assert shape_and_values(rows, "p") == ((len(rows),), rows)


@given(SHAPES, st.data())
def test_index_path_matches_numpy(shape: list[int], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, int(np.prod(shape)) - 1))
    assert index_path(index, shape) == "".join(f"[{axis_index}]" for axis_index in np.unravel_index(index, shape))
